"""Configuration: what a YAML file, a preset and the command line say, validated and resolved."""
