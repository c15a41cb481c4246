# `a2a-gcs bucket apply` brings a bucket to the same settings for those who do without Terraform.

resource "google_storage_bucket" "store" {
  # checkov:skip=CKV_GCP_62: usage logs need a bucket of their own; Cloud Audit Logs' data access logs tell more, by project
  # checkov:skip=CKV_GCP_78: task.json is overwritten every few seconds while a task runs, and each version would be kept; var.versioning

  name     = var.bucket
  location = var.bucket_location == "" ? var.region : var.bucket_location
  labels   = local.labels

  uniform_bucket_level_access = true
  public_access_prevention    = "enforced"
  force_destroy               = false

  soft_delete_policy {
    # On by default in Google Cloud, for 7 days, and it bills what is overwritten as well.
    retention_duration_seconds = var.soft_delete_days * 86400
  }

  versioning {
    enabled = var.versioning
  }

  # Batches of a running task's journal are removed a minute after its end; these were left by hosts that died.
  lifecycle_rule {
    action {
      type = "Delete"
    }
    condition {
      age            = 7
      matches_suffix = [".events.json"]
    }
  }

  # Parts of uploads that nobody finished.
  lifecycle_rule {
    action {
      type = "AbortIncompleteMultipartUpload"
    }
    condition {
      age = 7
    }
  }

  dynamic "lifecycle_rule" {
    for_each = var.versioning ? [var.noncurrent_days] : []
    content {
      action {
        type = "Delete"
      }
      condition {
        days_since_noncurrent_time = lifecycle_rule.value
      }
    }
  }

  dynamic "encryption" {
    for_each = var.kms_key == "" ? [] : [var.kms_key]
    content {
      default_kms_key_name = encryption.value
    }
  }

  depends_on = [google_project_service.api, google_kms_crypto_key_iam_member.storage]
}

# Cloud Storage itself encrypts and decrypts, as its own service agent.

data "google_storage_project_service_account" "agent" {
  count = var.kms_key == "" ? 0 : 1
}

resource "google_kms_crypto_key_iam_member" "storage" {
  count = var.kms_key == "" ? 0 : 1

  crypto_key_id = var.kms_key
  role          = "roles/cloudkms.cryptoKeyEncrypterDecrypter"
  member        = "serviceAccount:${data.google_storage_project_service_account.agent[0].email_address}"
}
