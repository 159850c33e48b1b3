"""The processes that answer the API beside the one that runs the jobs, as that one keeps them."""
