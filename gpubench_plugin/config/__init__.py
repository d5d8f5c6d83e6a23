"""Configuration: YAML files, presets and command line options, validated and resolved."""
