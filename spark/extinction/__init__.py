"""Record extinction on the lower floor: which rows an extinction reaches, and how they go."""
