# `a2a-gcs gc` as a job, and what starts it.

locals {
  gc = var.gc_schedule == "" ? 0 : 1
}

resource "google_cloud_run_v2_job" "gc" {
  count = local.gc

  name                = "${var.name}-gc"
  location            = var.region
  labels              = local.labels
  deletion_protection = var.deletion_protection

  template {
    template {
      service_account = google_service_account.host.email
      timeout         = "3600s"
      max_retries     = 1

      containers {
        image = var.image
        args  = concat(["gc", "--store", local.store, "--all-roots"], var.gc_args)

        resources {
          limits = {
            cpu    = "1"
            memory = "1Gi"
          }
        }
      }
    }
  }

  depends_on = [
    google_project_service.api,
    google_storage_bucket_iam_member.objects,
    google_storage_bucket_iam_member.settings,
  ]
}

# An account of its own, which may start this job and do nothing else.

resource "google_service_account" "scheduler" {
  count = local.gc

  account_id   = "${var.name}-gc"
  display_name = "Starts ${var.name}-gc"
}

resource "google_cloud_run_v2_job_iam_member" "scheduler" {
  count = local.gc

  name     = google_cloud_run_v2_job.gc[0].name
  location = var.region
  role     = "roles/run.invoker"
  member   = "serviceAccount:${google_service_account.scheduler[0].email}"
}

resource "google_cloud_scheduler_job" "gc" {
  count = local.gc

  name             = "${var.name}-gc"
  description      = "Starts the Cloud Run job ${var.name}-gc"
  region           = var.region
  schedule         = var.gc_schedule
  time_zone        = "Etc/UTC"
  attempt_deadline = "60s"

  retry_config {
    retry_count = 2
  }

  http_target {
    http_method = "POST"
    uri         = "https://run.googleapis.com/v2/${google_cloud_run_v2_job.gc[0].id}:run"

    oauth_token {
      service_account_email = google_service_account.scheduler[0].email
    }
  }

  depends_on = [google_project_service.api]
}
