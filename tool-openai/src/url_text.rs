//! Texts that may be URLs, without the parts that may be secrets.

/// Returns a text that may be a URL, without its query and fragment.
pub(crate) fn without_query(text: &str) -> &str {
    text.split(['?', '#']).next().unwrap_or_default()
}

/// Returns a text that may be a URL, without its user name and password.
pub(crate) fn without_user_info(text: &str) -> String {
    let (scheme, rest) = text.split_at(text.find("//").map_or(0, |start| start + 2));
    let (authority, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
    format!("{scheme}{}{path}", authority.rsplit('@').next().unwrap_or_default())
}
