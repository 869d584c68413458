//! `${VAR}` and `${VAR:-default}` in the file's strings, so that secrets and per-machine values stay out of it.
//!
//! `$${` is a literal `${`. A default holds up to the next `}`; there is no nesting. A variable that is not set is an
//! error: an empty path or size would be found much later.

use super::unit::Complaint;
use std::collections::BTreeMap;

/// The process environment, as data.
pub type Environment = BTreeMap<String, String>;

/// `text` with every reference replaced.
///
/// # Errors
/// When a variable is not set and has no default, or a reference is malformed.
pub(super) fn expand(text: &str, environment: &Environment) -> Result<String, Complaint> {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find("${") {
        if rest[..at].ends_with('$') {
            out.push_str(&rest[..at - 1]);
            out.push_str("${");
            rest = &rest[at + 2..];
            continue;
        }
        out.push_str(&rest[..at]);
        let body = &rest[at + 2..];
        let end = body.find('}').ok_or_else(|| {
            Complaint::new(format!("\"{text}\" has \"${{\" without \"}}\""), "close it, or write \"$${\"")
        })?;
        out.push_str(&resolve(&body[..end], environment)?);
        rest = &body[end + 1..];
    }
    out.push_str(rest);
    Ok(out)
}

fn resolve(reference: &str, environment: &Environment) -> Result<String, Complaint> {
    let (name, default) = match reference.split_once(":-") {
        Some((name, default)) => (name, Some(default)),
        None => (reference, None),
    };
    let starts_well = name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_');
    if !starts_well || !name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_') {
        return Err(Complaint::new(
            format!("\"${{{reference}}}\" does not name a variable"),
            "write ${NAME} or ${NAME:-default}",
        ));
    }
    // As in a shell, ":-" replaces an empty value too.
    let value = environment.get(name).filter(|value| default.is_none() || !value.is_empty());
    match (value, default) {
        (Some(value), _) => Ok(value.clone()),
        (None, Some(default)) => Ok(default.to_owned()),
        (None, None) => Err(Complaint::new(
            format!("the environment variable {name} is not set"),
            format!("set it, or give a default: ${{{name}:-default}}"),
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn environment() -> Environment {
        [("HOST", "10.0.0.5"), ("EMPTY", "")].map(|(k, v)| (k.to_owned(), v.to_owned())).into()
    }

    #[test]
    fn references_are_replaced() {
        for (text, expected) in [
            ("nbd://${HOST}/vm1", "nbd://10.0.0.5/vm1"),
            ("${HOST}${HOST}", "10.0.0.510.0.0.5"),
            ("${NONE:-x}", "x"),
            ("${NONE:-}", ""),
            ("${EMPTY:-x}", "x"),
            ("a${EMPTY}b", "ab"),
            ("$${HOST}", "${HOST}"),
            ("$HOST $ {", "$HOST $ {"),
            ("plain", "plain"),
        ] {
            assert_eq!(expand(text, &environment()).as_deref(), Ok(expected), "{text}");
        }
    }

    #[test]
    fn an_unset_variable_and_a_malformed_reference_are_errors() {
        for (text, problem) in [
            ("${NONE}", "the environment variable NONE is not set"),
            ("${HOST", "without"),
            ("${}", "does not name a variable"),
            ("${A B}", "does not name a variable"),
            ("${1A}", "does not name a variable"),
        ] {
            let complaint = expand(text, &environment()).expect_err(text);
            assert!(complaint.problem.contains(problem), "{complaint:?}");
        }
    }
}
