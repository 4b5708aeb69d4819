//! Desired and observed host networking to ordered kernel operations.
