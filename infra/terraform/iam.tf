# Who the services and the job are, and the least that they may do.

resource "google_service_account" "host" {
  account_id   = var.name
  display_name = "Hosts of ${var.name}"
}

locals {
  host = "serviceAccount:${google_service_account.host.email}"
}

# Create, read, list, overwrite and delete objects, in this bucket only.
resource "google_storage_bucket_iam_member" "objects" {
  bucket = google_storage_bucket.store.name
  role   = "roles/storage.objectUser"
  member = local.host
}

# Of buckets, only to read this one's settings: /ready and `a2a-gcs doctor` look at them.
resource "google_storage_bucket_iam_member" "settings" {
  bucket = google_storage_bucket.store.name
  role   = "roles/storage.legacyBucketReader"
  member = local.host
}

resource "google_secret_manager_secret_iam_member" "host" {
  for_each = toset([for secret in values(var.secrets) : secret.secret])

  secret_id = each.key
  role      = "roles/secretmanager.secretAccessor"
  member    = local.host
}

# Signing a URL takes signBlob, as there is no key file. roles/iam.serviceAccountTokenCreator would also mint tokens.

resource "google_project_iam_custom_role" "sign" {
  count = var.signed_urls ? 1 : 0

  role_id     = "${replace(var.name, "-", "_")}_sign"
  title       = "Sign URLs of ${var.name}"
  permissions = ["iam.serviceAccounts.signBlob"]
}

resource "google_service_account_iam_member" "sign" {
  count = var.signed_urls ? 1 : 0

  service_account_id = google_service_account.host.name
  role               = google_project_iam_custom_role.sign[0].id
  member             = local.host
}
