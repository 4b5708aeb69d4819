//! A pure model of EC2 and IMDS: time is an argument.
