#![no_implicit_prelude]
#![allow(dead_code)]

/// Sums two numbers.
#[::tool_core::tool("Sums two numbers", name = "add")]
fn sum(a: f64, #[param("the other", required = false)] b: ::std::option::Option<f64>) -> f64 {
    a + b.unwrap_or(0.0)
}

#[::tool_core::tool]
async fn words(text: &str) -> ::std::result::Result<usize, ::std::string::String> {
    ::std::result::Result::Ok(text.len())
}

pub(crate) fn main() {
    let set = ::tool_core::tools![sum, words];
    ::std::assert_eq!(set.len(), 2);
}
