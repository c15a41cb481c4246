# What is created, and from which variables; each concern has a file of its own.

data "google_project" "this" {
  project_id = var.project
}

locals {
  labels = {
    app        = var.name
    managed-by = "terraform"
  }
  store = var.prefix == "" ? "gs://${google_storage_bucket.store.name}" : "gs://${google_storage_bucket.store.name}/${var.prefix}"
}

resource "google_project_service" "api" {
  for_each = toset(concat(
    ["iam.googleapis.com", "run.googleapis.com", "storage.googleapis.com"],
    var.gc_schedule == "" ? [] : ["cloudscheduler.googleapis.com"],
    var.alerts ? ["monitoring.googleapis.com"] : [],
    length(var.secrets) == 0 ? [] : ["secretmanager.googleapis.com"],
  ))

  service            = each.key
  disable_on_destroy = false
}
