//! ferrule-lab: EC2, IMDS and a VPC on one machine.
