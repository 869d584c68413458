//! Signed: which headers of a request its signature covers (AWS SigV4, in a header or in the query; SigV2 covers none that matter here).
//!
//! Why: a header that is not covered may be added or changed on the way, and the store still knows the caller. So the gateway can ask, in the
//! caller's name, for the part of an object that it lacks.

use crate::target::pairs;
use http::Uri;
use http::header::{AUTHORIZATION, HeaderMap, HeaderName};
use percent_encoding::percent_decode_str;

/// Whether a header may be set to something else. What cannot be read may not.
#[must_use]
pub fn may_change(uri: &Uri, headers: &HeaderMap, name: &HeaderName) -> bool {
    let in_query = pairs(uri.query()).find(|(key, _)| *key == "X-Amz-SignedHeaders").map(|(_, value)| value);
    let is_covered = |list: &str| list.split(';').any(|it| it.trim().eq_ignore_ascii_case(name.as_str()));
    if let Some(list) = in_query {
        return percent_decode_str(list).decode_utf8().is_ok_and(|list| !is_covered(&list));
    }
    let Some(authorization) = headers.get(AUTHORIZATION) else { return true };
    let Ok(text) = authorization.to_str() else { return false };
    if text.starts_with("AWS ") {
        return true;
    }
    let mut fields = text.split([',', ' ']).map(str::trim);
    fields.find_map(|field| field.strip_prefix("SignedHeaders=")).is_some_and(|list| !is_covered(list))
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::header::{HOST, RANGE};

    #[test]
    fn what_is_signed_may_not_change_and_what_cannot_be_read_neither() {
        let v4 = |list: &str| {
            format!("AWS4-HMAC-SHA256 Credential=A/1/r/s3/aws4_request, SignedHeaders={list}, Signature=0")
        };
        for (uri, authorization, may) in [
            ("/b/k", None, true),
            ("/b/k", Some(v4("host;x-amz-date")), true),
            ("/b/k", Some(v4("host;range;x-amz-date")), false),
            ("/b/k", Some(v4("host;Range")), false),
            ("/b/k", Some("AWS4-HMAC-SHA256 Credential=A".to_owned()), false),
            ("/b/k", Some("Bearer x".to_owned()), false),
            ("/b/k", Some("AWS A:x".to_owned()), true),
            ("/b/k?X-Amz-SignedHeaders=host", None, true),
            ("/b/k?X-Amz-SignedHeaders=host%3Brange", None, false),
        ] {
            let headers = authorization.iter().map(|it| (AUTHORIZATION, it.parse().expect("a value"))).collect();
            assert_eq!(may_change(&uri.parse().expect("a URI"), &headers, &RANGE), may, "{uri} {authorization:?}");
        }
        let headers = [(AUTHORIZATION, v4("host").parse().expect("a value"))].into_iter().collect();
        assert!(!may_change(&Uri::from_static("/b/k"), &headers, &HOST));
    }
}
