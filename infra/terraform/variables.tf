# Where

variable "project" {
  description = "Project id that everything is created in."
  type        = string
}

variable "region" {
  description = "Region of the services, the job and, unless bucket_location says otherwise, the bucket."
  type        = string
}

variable "name" {
  description = "Name of the service; what belongs to it is named after it."
  type        = string
  default     = "a2a-gcs"

  validation {
    condition     = can(regex("^[a-z][a-z0-9-]{4,19}$", var.name))
    error_message = "name: 5 to 20 lower-case letters, digits and hyphens, a letter first (a service account is named after it)."
  }
}

# The bucket

variable "bucket" {
  description = "Name of the bucket; bucket names are unique in all of Google Cloud."
  type        = string
}

variable "bucket_location" {
  description = "Location of the bucket. Empty: the region of the services, which is fastest and has no transfer charge."
  type        = string
  default     = ""
}

variable "prefix" {
  description = "Path below which everything is kept, without slashes around it. Empty: the bucket itself."
  type        = string
  default     = ""
}

variable "soft_delete_days" {
  description = "Days for which deleted and overwritten objects can be brought back; 0, or 7 to 90. Each overwritten task.json and workspace.tar.gz is billed for as long."
  type        = number
  default     = 0

  validation {
    condition     = var.soft_delete_days == 0 || (var.soft_delete_days >= 7 && var.soft_delete_days <= 90)
    error_message = "soft_delete_days: 0, or 7 to 90."
  }
}

variable "versioning" {
  description = "Keep overwritten objects as noncurrent versions, for noncurrent_days. Nothing in a2a-gcs needs them."
  type        = bool
  default     = false
}

variable "noncurrent_days" {
  description = "Days after which noncurrent versions are deleted, with versioning."
  type        = number
  default     = 7
}

variable "kms_key" {
  description = "Cloud KMS key (projects/.../cryptoKeys/...) that encrypts the bucket; its location has to be the bucket's. Empty: a key of Google's."
  type        = string
  default     = ""
}

# The services

variable "image" {
  description = "Container image: infra/Dockerfile, or one that is built on it and brings agents."
  type        = string
}

variable "agent" {
  description = "The agent to host: demo, command:PROGRAM or package.module:attribute (A2A_GCS_AGENT)."
  type        = string
  default     = "demo"
}

variable "auth" {
  description = "How callers prove who they are (A2A_GCS_AUTH). cloud-run-iam takes the tokens that Cloud Run has checked."
  type        = string
  default     = "cloud-run-iam"
}

variable "env" {
  description = "Further settings by environment variable, such as { A2A_GCS_MAX_RUN_SECONDS = \"1800\" }."
  type        = map(string)
  default     = {}
}

variable "secrets" {
  description = "Environment variables from Secret Manager: secret (its id) and version by variable, such as A2A_GCS_TOKENS. A number as version is what a revision can be rolled back to."
  type = map(object({
    secret  = string
    version = string
  }))
  default = {}
}

variable "invokers" {
  description = "Who may call the services, such as [\"serviceAccount:caller@project.iam.gserviceaccount.com\"]. allUsers where A2A_GCS_AUTH does the checking."
  type        = set(string)
  default     = []
}

variable "ingress" {
  description = "INGRESS_TRAFFIC_ALL, INGRESS_TRAFFIC_INTERNAL_ONLY or INGRESS_TRAFFIC_INTERNAL_LOAD_BALANCER."
  type        = string
  default     = "INGRESS_TRAFFIC_ALL"
}

variable "cpu" {
  description = "CPUs of an instance."
  type        = string
  default     = "1"
}

variable "memory" {
  description = "Memory of an instance; without work_disk the workspaces of running tasks are in it."
  type        = string
  default     = "2Gi"
}

variable "concurrency" {
  description = "Requests that an instance serves at a time, streams included."
  type        = number
  default     = 80
}

variable "min_instances" {
  description = "Instances that are always there. With 0 a task that goes on after its request ended is parked when Cloud Run stops the idle instance."
  type        = number
  default     = 1
}

variable "max_instances" {
  description = "Most instances."
  type        = number
  default     = 10
}

variable "timeout_seconds" {
  description = "Longest request, streams included; Cloud Run allows 3600."
  type        = number
  default     = 3600
}

variable "work_disk" {
  description = "Size of an ephemeral disk for the workspaces of running tasks, such as 10Gi (Cloud Run's least). Empty: they are in memory."
  type        = string
  default     = ""
}

variable "grpc" {
  description = "Also run <name>-grpc, which serves gRPC over HTTP/2."
  type        = bool
  default     = false
}

variable "signed_urls" {
  description = "Let the service sign URLs of objects: a role with iam.serviceAccounts.signBlob on itself."
  type        = bool
  default     = false
}

variable "deletion_protection" {
  description = "Refuse to destroy services and job until this is false. The bucket is never destroyed while it holds objects."
  type        = bool
  default     = true
}

# Housekeeping and alerts

variable "gc_schedule" {
  description = "When gc runs, in cron's syntax, UTC. Empty: never."
  type        = string
  default     = "17 3 * * *"
}

variable "gc_args" {
  description = "Further arguments of a2a-gcs gc: how long what is kept. Without any it removes only what nothing refers to."
  type        = list(string)
  default     = []
}

variable "notification_channels" {
  description = "Notification channels of the alerts (projects/.../notificationChannels/...). Empty: alerts are only shown."
  type        = list(string)
  default     = []
}

variable "alerts" {
  description = "Whether to create the alert policies."
  type        = bool
  default     = true
}
