# What somebody has to look at.

locals {
  service_filter = "resource.type = \"cloud_run_revision\" AND resource.labels.service_name = one_of(${join(", ", [for service in local.services : jsonencode(service.name)])})"

  alerts = merge(
    {
      errors = {
        name     = "more than 2 % of requests fail"
        filter   = "${local.service_filter} AND metric.type = \"run.googleapis.com/request_count\" AND metric.labels.response_code_class = \"5xx\""
        of       = "${local.service_filter} AND metric.type = \"run.googleapis.com/request_count\""
        aligner  = "ALIGN_RATE"
        reducer  = "REDUCE_SUM"
        by       = "resource.label.service_name"
        above    = 0.02
        duration = "300s"
        advice   = "Look at the service's logs of severity ERROR, then run a2a-gcs doctor: a bucket that cannot be reached or written is the usual reason."
      }
      memory = {
        name     = "instances are short of memory"
        filter   = "${local.service_filter} AND metric.type = \"run.googleapis.com/container/memory/utilizations\""
        of       = null
        aligner  = "ALIGN_PERCENTILE_99"
        reducer  = "REDUCE_MAX"
        by       = "resource.label.service_name"
        above    = 0.9
        duration = "300s"
        advice   = "Workspaces of running tasks are in memory unless work_disk is set. Set it, raise memory, or lower concurrency or A2A_GCS_MAX_RUNNING_TASKS: an instance that runs out is killed with all its tasks."
      }
      instances = {
        name     = "all instances are in use"
        filter   = "${local.service_filter} AND metric.type = \"run.googleapis.com/container/instance_count\""
        of       = null
        aligner  = "ALIGN_MAX"
        reducer  = "REDUCE_SUM"
        by       = "resource.label.service_name"
        above    = var.max_instances - 1
        duration = "600s"
        advice   = "Further requests wait, and then are refused by Cloud Run. Raise max_instances or concurrency."
      }
    },
    var.gc_schedule == "" ? {} : {
      gc = {
        name     = "gc has failed"
        filter   = "resource.type = \"cloud_run_job\" AND resource.labels.job_name = \"${var.name}-gc\" AND metric.type = \"run.googleapis.com/job/completed_execution_count\" AND metric.labels.result = \"failed\""
        of       = null
        aligner  = "ALIGN_DELTA"
        reducer  = "REDUCE_SUM"
        by       = "resource.label.job_name"
        above    = 0
        duration = "0s"
        advice   = "Look at the job's logs. Nothing is lost; what gc would have removed is still there, and billed."
      }
    },
  )
}

resource "google_monitoring_alert_policy" "this" {
  for_each = var.alerts ? local.alerts : {}

  display_name          = "${var.name}: ${each.value.name}"
  combiner              = "OR"
  notification_channels = var.notification_channels
  user_labels           = local.labels

  conditions {
    display_name = each.value.name

    condition_threshold {
      filter             = each.value.filter
      denominator_filter = each.value.of
      comparison         = "COMPARISON_GT"
      threshold_value    = each.value.above
      duration           = each.value.duration

      aggregations {
        alignment_period     = "300s"
        per_series_aligner   = each.value.aligner
        cross_series_reducer = each.value.reducer
        group_by_fields      = [each.value.by]
      }

      dynamic "denominator_aggregations" {
        for_each = each.value.of == null ? [] : [each.value]
        content {
          alignment_period     = "300s"
          per_series_aligner   = denominator_aggregations.value.aligner
          cross_series_reducer = denominator_aggregations.value.reducer
          group_by_fields      = [denominator_aggregations.value.by]
        }
      }
    }
  }

  documentation {
    content   = each.value.advice
    mime_type = "text/markdown"
  }

  depends_on = [google_project_service.api]
}
