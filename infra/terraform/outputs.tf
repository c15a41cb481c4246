output "url" {
  description = "Where the service answers; the agent card is at /.well-known/agent-card.json."
  value       = local.services.http.env.A2A_GCS_PUBLIC_URL
}

output "grpc_target" {
  description = "host:port of the gRPC service, with TLS; null without it."
  value       = var.grpc ? "${trimprefix(google_cloud_run_v2_service.host["grpc"].uri, "https://")}:443" : null
}

output "store" {
  description = "What --store is for the commands that read the bucket."
  value       = local.store
}

output "service_account" {
  description = "Who the services and the job are; what else agents need is granted to it."
  value       = google_service_account.host.email
}

output "gc_job" {
  description = "Name of the job that runs gc; null without it."
  value       = one(google_cloud_run_v2_job.gc[*].name)
}
