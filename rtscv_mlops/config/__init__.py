"""The monitor: one YAML file per monitored model, validated before anything else happens."""
