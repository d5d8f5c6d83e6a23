"""What a run is judged against: baselines turned into the earlier runs that are its samples."""
