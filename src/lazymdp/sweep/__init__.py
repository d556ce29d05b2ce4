"""Studies: many training runs, on one machine or a cluster, that survive faults and say what they will cost."""
