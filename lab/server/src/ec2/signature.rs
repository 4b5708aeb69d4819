//! Signer of a request. Signatures are not checked: the lab has nothing to protect.

/// The access key of a SigV4 request: of its `Authorization` header or of its query.
pub(super) fn access_key(authorization: Option<&str>, query: Option<&str>) -> Option<String> {
    let credential = match authorization {
        Some(header) => {
            let (_, fields) = header.strip_prefix("AWS4-HMAC-SHA256")?.split_once("Credential=")?;
            fields.to_owned()
        }
        None => form_urlencoded::parse(query?.as_bytes())
            .find(|(name, _)| name == "X-Amz-Credential")?
            .1
            .into_owned(),
    };
    let key = credential.split(['/', ',', ' ']).next()?;
    (!key.is_empty()).then(|| key.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_access_key_is_read_from_header_or_query() {
        let header = "AWS4-HMAC-SHA256 Credential=ASIALAB1/20261121/us-west-2/ec2/aws4_request, \
                      SignedHeaders=host;x-amz-date, Signature=00";
        assert_eq!(access_key(Some(header), None).as_deref(), Some("ASIALAB1"));
        let query = "Action=X&X-Amz-Credential=AKIA2%2F20261121%2Fus-west-2%2Fec2%2Faws4_request";
        assert_eq!(access_key(None, Some(query)).as_deref(), Some("AKIA2"));
    }

    #[test]
    fn a_request_without_a_signature_has_no_key() {
        assert_eq!(access_key(None, None), None);
        assert_eq!(access_key(Some("Basic Zm9v"), Some("Action=X")), None);
        assert_eq!(access_key(Some("AWS4-HMAC-SHA256 Credential=/x"), None), None);
    }
}
