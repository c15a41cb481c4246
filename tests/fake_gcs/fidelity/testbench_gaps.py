"""Where googleapis/storage-testbench does not hold a case of the suite, and why: strict expected failures.

It is Google's own emulator for testing client libraries. It lacks rules, and writes notes of its own into
custom metadata; neither says anything of real GCS. Where both implement a rule and disagree,
the source that decides is named.
"""

LACKS = "the testbench has no such rule"
NOTES = "the testbench adds x_emulator_* and x_testbench_* to custom metadata"
GLOBS = "disagrees, pathlib's globs: docs/json_api/v1/objects/list, matchGlob"
BODIES = "the testbench's errors carry no reason"

GAPS = {
    "test_buckets.py": {
        "test_bucket_exists_already": BODIES,
        "test_bucket_with_objects_stays": "disagrees, 400 for 409: docs/json_api/v1/status-codes, 409 conflict",
        "test_forbidden_bucket_names": BODIES,
        "test_patch_is_stored[softDeletePolicy]": "disagrees, 0 seconds is 400: docs/soft-delete, 0 turns it off",
        "test_soft_delete_is_on_by_default": LACKS,
        "test_storage_layout": LACKS,
        "test_unknown_bucket_is_404": BODIES,
    },
    "test_listing.py": {
        "test_a_page_holds_at_most_1000": LACKS,
        "test_bad_max_results_is_400": LACKS,
        "test_bad_token_is_400": LACKS,
        "test_delimiter_in_pages": LACKS,
        "test_empty_listing": "disagrees, empty lists for none: members without a value are left out of JSON answers",
        "test_fields_of_a_listing[items(name,metadata/k),nextPageToken-expected1]": LACKS,
        "test_fields_of_a_listing[*-expected3]": LACKS,
        "test_listing_an_unknown_bucket_is_404": BODIES,
        "test_match_glob[**.json-matches0]": GLOBS,
        "test_match_glob[*-matches1]": GLOBS,
        "test_match_glob[b/*.{json,txt}-matches4]": GLOBS,
        "test_match_glob[a/**-matches5]": GLOBS,
        "test_metadata_in_a_listing": NOTES,
        "test_pages": LACKS,
        "test_unreadable_fields": LACKS,
    },
    "test_objects.py": {
        "test_body_of_404": BODIES,
        "test_body_of_412": BODIES,
        "test_changing_what_is_not_there_is_404": BODIES,
        "test_compose_joins": "disagrees, composites have an md5: docs/composite-objects, they have none",
        "test_compose_takes_1_to_32_sources[0-400]": LACKS,
        "test_copy_keeps_metadata": NOTES,
        "test_deleted_is_gone": "disagrees, 200 for 204: docs/json_api/v1/objects/delete, an empty answer is 204",
        "test_generation_is_pinned": "disagrees, keeps old versions: docs/object-versioning, only where it is enabled",
        "test_held_object_stays": LACKS,
        "test_move_renames": NOTES,
        "test_no_transform_is_honoured": LACKS,
    },
    "test_preconditions.py": {
        "test_condition_that_is_no_number_is_invalid": LACKS,
        **{
            f"test_not_match_fails_where_there_is_no_object[7-{condition}-{verb}]": (
                "disagrees, passes: docs/json_api/v1/objects/insert, if no live object exists, the precondition fails"
            )
            for condition in ("ifGenerationNotMatch", "ifMetagenerationNotMatch")
            for verb in ("media", "multipart", "resumable", "compose", "copyTo", "rewriteTo")
        },
    },
    "test_resumable.py": {
        "test_gap_is_refused": LACKS,
        "test_metadata_of_the_start_is_kept": NOTES,
        "test_short_chunk_is_refused": LACKS,
        "test_uneven_chunk_is_persisted_in_part": LACKS,
        "test_unreadable_range_is_400": LACKS,
    },
    "test_uploads.py": {
        "test_checksum_in_a_header_is_checked": "disagrees, 412 for 400: docs/data-validation",
        "test_custom_metadata_over_8_kib": LACKS,
        "test_custom_metadata_up_to_8_kib": NOTES,
        "test_declared_checksum_is_checked": "disagrees, 412 for 400: docs/data-validation",
        "test_empty_body": "disagrees, leaves size out: docs/json_api/v1/objects, size is always there",
        "test_forbidden_names": LACKS,
        "test_generation_does_not_come_back": "disagrees, 200 for 204: docs/json_api/v1/objects/delete",
        "test_generations_grow": NOTES,
        "test_longest_name": LACKS,
        "test_metadata_round_trip": NOTES,
        "test_multipart_with_bare_newlines": LACKS,
        "test_name_is_required": BODIES,
        "test_patch_merges_metadata": NOTES,
        "test_patch_over_8_kib": LACKS,
    },
    "test_write_limit.py": {
        "test_a_second_later_it_goes_on": LACKS,
        "test_every_mutation_counts": LACKS,
        "test_writes_to_one_name_are_limited": LACKS,
    },
}
