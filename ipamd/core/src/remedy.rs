//! The table of EC2's error codes, sorted by what the caller can do next.

use crate::{CloudFault, Remedy};
use config_model::Span;

/// An error response of EC2.
#[derive(Clone, Copy, Debug)]
pub struct Ec2ErrorResponse<'a> {
    /// EC2's name of the action.
    pub action: &'a str,
    /// `None` if a proxy or a load balancer answered instead of EC2.
    pub code: Option<&'a str>,
    pub message: &'a str,
    /// The HTTP status.
    pub status: u16,
    /// The `Retry-After` header.
    pub retry_after: Option<Span>,
}

impl Ec2ErrorResponse<'_> {
    /// Converts the response to the core's fault.
    pub fn fault(self) -> CloudFault {
        let remedy = self.remedy();
        let Some(code) = self.code else {
            let message = format!("{}: HTTP status {} without a code", self.action, self.status);
            return CloudFault { code: format!("HTTP{}", self.status), message, remedy };
        };
        let message = match code {
            "UnauthorizedOperation" | "AccessDenied" => {
                format!("the node's role lacks ec2:{}: {}", self.action, self.message)
            }
            _ => self.message.to_owned(),
        };
        let code = match code {
            "InvalidParameterValue" if self.lacks_prefix() => "InsufficientCidrBlocks",
            "InvalidParameterValue" if self.lacks_address() => "InsufficientFreeAddressesInSubnet",
            code => code,
        };
        CloudFault { code: code.to_owned(), message, remedy }
    }

    fn remedy(self) -> Remedy {
        let again = Remedy::RetryAfter { wait: self.retry_after };
        let Some(code) = self.code else { return self.remedy_by_status(again) };
        match code {
            _ if THROTTLING_CODES.contains(&code) || TRANSIENT_CODES.contains(&code) => again,
            "InsufficientFreeAddressesInSubnet" | "InsufficientCidrBlocks" => Remedy::TryElsewhere,
            "InvalidParameterValue" if self.lacks_prefix() || self.lacks_address() => {
                Remedy::TryElsewhere
            }
            "InvalidParameterValue" if self.is_index_taken() => Remedy::TryElsewhere,
            "InvalidParameterValue" if self.is_in_use() => again,
            _ if code.ends_with("LimitExceeded") => Remedy::LimitReached,
            _ if code.ends_with(".NotFound") => Remedy::Gone,
            // EC2 marks its own failures by the status; an error code means that it did nothing.
            _ if self.status >= 500 => again,
            _ => Remedy::NotifyOperator,
        }
    }

    /// A response without a code is not from EC2, unless EC2 was overloaded. The result of the call is unknown.
    fn remedy_by_status(self, again: Remedy) -> Remedy {
        match self.status {
            429 | 503 => again,
            500.. => Remedy::Unknown,
            _ => Remedy::NotifyOperator,
        }
    }

    /// An ENI that is still detaching cannot be deleted yet.
    fn is_in_use(self) -> bool {
        self.action == "DeleteNetworkInterface" && self.message.contains("currently in use")
    }

    /// `InvalidParameterValue` has many causes. This one: the subnet has no contiguous block, though it may have
    /// single addresses.
    fn lacks_prefix(self) -> bool {
        self.lacks_room()
            && (self.message_contains("prefix") || self.message_contains("cidr block"))
    }

    /// This one: the subnet is full.
    fn lacks_address(self) -> bool {
        self.lacks_room() && !self.lacks_prefix()
    }

    fn lacks_room(self) -> bool {
        let places = ["CreateNetworkInterface", "AssignPrivateIpAddresses", "AssignIpv6Addresses"];
        let words = ["free addresses", "insufficient", "sufficient free", "enough free"];
        places.contains(&self.action) && words.iter().any(|word| self.message_contains(word))
    }

    /// Another device index may be free.
    fn is_index_taken(self) -> bool {
        self.action == "AttachNetworkInterface"
            && self.message_contains("already has an interface attached at device index")
    }

    fn message_contains(self, text: &str) -> bool {
        self.message.to_ascii_lowercase().contains(text)
    }
}

/// Too many calls.
pub const THROTTLING_CODES: [&str; 7] = [
    "EC2ThrottledException",
    "RequestLimitExceeded",
    "RequestThrottled",
    "RequestThrottledException",
    "Throttling",
    "ThrottlingException",
    "TooManyRequestsException",
];

/// EC2 failed, or the object is between two states: an ENI that is still attaching or detaching.
const TRANSIENT_CODES: [&str; 9] = [
    "ConcurrentTagAccess",
    "ExpiredToken",
    "IncorrectInstanceState",
    "IncorrectState",
    "InternalError",
    "InternalFailure",
    "InvalidNetworkInterface.InUse",
    "ServiceUnavailable",
    "Unavailable",
];

#[cfg(test)]
mod tests {
    use super::*;

    fn remedy(action: &str, code: &str, message: &str, status: u16) -> Remedy {
        Ec2ErrorResponse { action, code: Some(code), message, status, retry_after: None }
            .fault()
            .remedy
    }

    const AGAIN: Remedy = Remedy::RetryAfter { wait: None };

    #[test]
    fn each_code_has_its_remedy() {
        for (code, status, wanted) in [
            ("RequestLimitExceeded", 503, AGAIN),
            ("Throttling", 400, AGAIN),
            ("InternalError", 500, AGAIN),
            ("SomethingNew", 500, AGAIN),
            ("IncorrectState", 400, AGAIN),
            ("InvalidNetworkInterface.InUse", 400, AGAIN),
            ("InsufficientFreeAddressesInSubnet", 400, Remedy::TryElsewhere),
            ("InsufficientCidrBlocks", 400, Remedy::TryElsewhere),
            ("PrivateIpAddressLimitExceeded", 400, Remedy::LimitReached),
            ("AttachmentLimitExceeded", 400, Remedy::LimitReached),
            ("NetworkInterfaceLimitExceeded", 400, Remedy::LimitReached),
            ("InvalidNetworkInterfaceID.NotFound", 400, Remedy::Gone),
            ("InvalidAttachmentID.NotFound", 400, Remedy::Gone),
            ("InvalidSubnetID.NotFound", 400, Remedy::Gone),
            ("UnauthorizedOperation", 403, Remedy::NotifyOperator),
            ("AuthFailure", 401, Remedy::NotifyOperator),
            ("InvalidParameterValue", 400, Remedy::NotifyOperator),
            ("SomethingNew", 400, Remedy::NotifyOperator),
        ] {
            assert_eq!(remedy("CreateNetworkInterface", code, "", status), wanted, "{code}");
        }
    }

    #[test]
    fn an_invalid_value_that_means_a_full_subnet_leads_elsewhere() {
        let (code, full) = ("InvalidParameterValue", "There aren't sufficient free Ipv4 addresses");
        let none = "The subnet does not have enough free addresses to satisfy the request.";
        let taken = "Instance 'i-1' already has an interface attached at device index '1'.";
        for (action, message, wanted) in [
            ("CreateNetworkInterface", full, Remedy::TryElsewhere),
            ("CreateNetworkInterface", none, Remedy::TryElsewhere),
            ("AssignPrivateIpAddresses", none, Remedy::TryElsewhere),
            ("AttachNetworkInterface", taken, Remedy::TryElsewhere),
            ("AttachNetworkInterface", "Network card index 7", Remedy::NotifyOperator),
            ("UnassignPrivateIpAddresses", none, Remedy::NotifyOperator),
        ] {
            assert_eq!(remedy(action, code, message, 400), wanted, "{action}: {message}");
        }
    }

    #[test]
    fn a_fragmented_subnet_differs_from_a_full_one() {
        let code = |action, message| {
            let code = Some("InvalidParameterValue");
            Ec2ErrorResponse { action, code, message, status: 400, retry_after: None }.fault().code
        };
        let (create, assign) = ("CreateNetworkInterface", "AssignPrivateIpAddresses");
        for (action, message, wanted) in [
            (
                create,
                "There aren't sufficient free Ipv4 addresses or prefixes",
                "InsufficientCidrBlocks",
            ),
            (
                assign,
                "The specified subnet does not have enough free cidr blocks.",
                "InsufficientCidrBlocks",
            ),
            (
                create,
                "There aren't sufficient free Ipv4 addresses",
                "InsufficientFreeAddressesInSubnet",
            ),
            (create, "Value (x) for parameter prefix is invalid", "InvalidParameterValue"),
            ("DeleteNetworkInterface", "insufficient prefixes", "InvalidParameterValue"),
        ] {
            assert_eq!(code(action, message), wanted, "{action}: {message}");
        }
    }

    #[test]
    fn an_eni_that_is_still_attached_is_deleted_later() {
        let (code, message) = ("InvalidParameterValue", "Interface 'eni-1' is currently in use.");
        assert_eq!(remedy("DeleteNetworkInterface", code, message, 400), AGAIN);
        assert_eq!(remedy("CreateNetworkInterface", code, message, 400), Remedy::NotifyOperator);
    }

    #[test]
    fn without_a_code_only_a_busy_server_has_certainly_done_nothing() {
        let by_status = |status| {
            let answered = Ec2ErrorResponse {
                action: "DeleteNetworkInterface",
                code: None,
                message: "",
                status,
                retry_after: None,
            };
            answered.fault().remedy
        };
        assert_eq!([by_status(503), by_status(429)], [AGAIN, AGAIN]);
        assert_eq!([by_status(500), by_status(502)], [Remedy::Unknown, Remedy::Unknown]);
        assert_eq!(by_status(403), Remedy::NotifyOperator);
    }

    #[test]
    fn a_missing_permission_is_named() {
        let fault = Ec2ErrorResponse {
            action: "AttachNetworkInterface",
            code: Some("UnauthorizedOperation"),
            message: "You are not authorized to perform this operation.",
            status: 403,
            retry_after: None,
        }
        .fault();
        assert!(fault.message.contains("ec2:AttachNetworkInterface"), "{fault}");
    }

    #[test]
    fn the_wait_that_ec2_asks_for_is_handed_on() {
        let wait = Some(Span::seconds(7));
        let answered = Ec2ErrorResponse {
            action: "DescribeNetworkInterfaces",
            code: Some("RequestLimitExceeded"),
            message: "",
            status: 503,
            retry_after: wait,
        };
        assert_eq!(answered.fault().remedy, Remedy::RetryAfter { wait });
    }
}
