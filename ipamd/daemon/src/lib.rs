//! ferrule-ipamd: the node's ENIs and addresses.
