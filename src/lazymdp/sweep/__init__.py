"""Studies: many training runs, on one machine or on a cluster, that survive faults and say what they cost beforehand."""
