# The host on Cloud Run, and with var.grpc a second service for gRPC, as Cloud Run routes one port to a service.

locals {
  env = merge(
    {
      A2A_GCS_STORE = local.store
      A2A_GCS_AGENT = var.agent
      A2A_GCS_AUTH  = var.auth
    },
    var.work_disk == "" ? {} : { A2A_GCS_WORK_DIR = "/work" },
    var.env,
  )

  domain = "${data.google_project.this.number}.${var.region}.run.app" # after a service's name and a dash

  services = merge(
    {
      http = {
        name = var.name
        port = "http1"
        env  = { A2A_GCS_PUBLIC_URL = "https://${var.name}-${local.domain}" }
      }
    },
    var.grpc ? {
      grpc = {
        name = "${var.name}-grpc"
        port = "h2c"
        env  = { A2A_GCS_GRPC_ONLY = "true", A2A_GCS_PUBLIC_URL = "https://${var.name}-grpc-${local.domain}" }
      }
    } : {},
  )
}

resource "google_cloud_run_v2_service" "host" {
  for_each = local.services

  name                = each.value.name
  location            = var.region
  labels              = local.labels
  ingress             = var.ingress
  deletion_protection = var.deletion_protection
  # Where readiness probes and disks are in preview, they are only taken so; otherwise it changes nothing.
  launch_stage = "BETA"

  template {
    service_account                  = google_service_account.host.email
    execution_environment            = "EXECUTION_ENVIRONMENT_GEN2"
    timeout                          = "${var.timeout_seconds}s"
    max_instance_request_concurrency = var.concurrency
    # Best effort, and only faster: a context's next task finds its workspace on the host that ran the last one.
    session_affinity = true

    scaling {
      min_instance_count = var.min_instances
      max_instance_count = var.max_instances
    }

    containers {
      image = var.image

      ports {
        name           = each.value.port
        container_port = 8080
      }

      resources {
        limits = {
          cpu    = var.cpu
          memory = var.memory
        }
        # Instance-based billing: tasks go on after their request, and heartbeats between requests.
        cpu_idle          = false
        startup_cpu_boost = true
      }

      dynamic "env" {
        for_each = merge(local.env, each.value.env)
        content {
          name  = env.key
          value = env.value
        }
      }

      dynamic "env" {
        for_each = var.secrets
        content {
          name = env.key
          value_source {
            secret_key_ref {
              secret  = env.value.secret
              version = env.value.version
            }
          }
        }
      }

      startup_probe {
        period_seconds    = 2
        timeout_seconds   = 2
        failure_threshold = 30

        dynamic "http_get" {
          for_each = each.key == "http" ? ["/health"] : []
          content {
            path = http_get.value
          }
        }
        dynamic "grpc" {
          for_each = each.key == "grpc" ? [8080] : []
          content {
            port = grpc.value
          }
        }
      }

      liveness_probe {
        period_seconds    = 10
        timeout_seconds   = 5
        failure_threshold = 6

        dynamic "http_get" {
          for_each = each.key == "http" ? ["/health"] : []
          content {
            path = http_get.value
          }
        }
        dynamic "grpc" {
          for_each = each.key == "grpc" ? [8080] : []
          content {
            port = grpc.value
          }
        }
      }

      # An instance that does not reach the bucket, or is stopping, gets no new requests; it is not restarted for it.
      readiness_probe {
        period_seconds    = 10
        timeout_seconds   = 5
        failure_threshold = 2

        dynamic "http_get" {
          for_each = each.key == "http" ? ["/ready"] : []
          content {
            path = http_get.value
          }
        }
        dynamic "grpc" {
          for_each = each.key == "grpc" ? [8080] : []
          content {
            port = grpc.value
          }
        }
      }

      dynamic "volume_mounts" {
        for_each = var.work_disk == "" ? [] : ["work"]
        content {
          name       = volume_mounts.value
          mount_path = "/work"
        }
      }
    }

    dynamic "volumes" {
      for_each = var.work_disk == "" ? [] : [var.work_disk]
      content {
        name = "work"
        empty_dir {
          medium     = "DISK"
          size_limit = volumes.value
        }
      }
    }
  }

  depends_on = [
    google_project_service.api,
    google_secret_manager_secret_iam_member.host,
    google_storage_bucket_iam_member.objects,
    google_storage_bucket_iam_member.settings,
  ]
}

resource "google_cloud_run_v2_service_iam_member" "invoker" {
  for_each = {
    for pair in setproduct(keys(local.services), var.invokers) : "${pair[0]} ${pair[1]}" => { service = pair[0], member = pair[1] }
  }

  name     = google_cloud_run_v2_service.host[each.value.service].name
  location = var.region
  role     = "roles/run.invoker"
  member   = each.value.member
}
