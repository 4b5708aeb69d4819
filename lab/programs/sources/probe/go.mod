module ferrule/lab/probe

go 1.26.0
