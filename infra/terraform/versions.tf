terraform {
  required_version = ">= 1.5"

  required_providers {
    google = {
      source = "hashicorp/google"
      # readiness_probe of google_cloud_run_v2_service
      version = ">= 7.20, < 9.0"
    }
  }
}

provider "google" {
  project = var.project
  region  = var.region
}
