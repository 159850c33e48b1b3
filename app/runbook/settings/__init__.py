"""Every setting of the service: what it means, its default, and what happens when it is wrong."""
