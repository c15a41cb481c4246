"""The SDK's task store, listing and event stream, over task.json."""
