//! Reads doc comments as plain text.

use syn::{Attribute, Expr, ExprLit, Lit, Meta, parse_quote};

pub(crate) fn is_doc(attribute: &Attribute) -> bool {
    attribute.path().is_ident("doc")
}

/// Returns the doc comment line by line, without the leading space that rustdoc drops too, or `None` if it is blank.
fn text(attributes: &[Attribute]) -> Option<String> {
    let docs = attributes.iter().filter(|attribute| is_doc(attribute)).filter_map(doc_text);
    let lines: Vec<_> =
        docs.map(|doc| if doc.contains('\n') { dedent_block(&doc) } else { dedent_line(&doc) }).collect();
    let text = lines.join("\n");
    let text = text.trim();
    (!text.is_empty()).then(|| text.to_owned())
}

/// Returns the doc comment as a string literal, or `None` if it is blank.
pub(crate) fn literal(attributes: &[Attribute]) -> Option<Expr> {
    text(attributes).map(|text| parse_quote!(#text))
}

/// Returns the text of a `///` line, a `/** */` block or `#[doc = "…"]`, and `None` for forms such as `#[doc(hidden)]`.
fn doc_text(attribute: &Attribute) -> Option<String> {
    let Meta::NameValue(meta) = &attribute.meta else { return None };
    match &meta.value {
        Expr::Lit(ExprLit { lit: Lit::Str(literal), .. }) => Some(literal.value()),
        _ => None,
    }
}

fn dedent_line(line: &str) -> String {
    line.strip_prefix(' ').unwrap_or(line).trim_end().to_owned()
}

/// Returns the text of a block comment without its indentation and its column of stars.
fn dedent_block(doc: &str) -> String {
    let lines: Vec<_> = doc.lines().map(str::trim).collect();
    let has_stars = lines.iter().skip(1).filter(|line| !line.is_empty()).all(|line| line.starts_with('*'));
    let lines = lines.into_iter().map(|line| match line.strip_prefix('*') {
        Some(rest) if has_stars => rest.strip_prefix(' ').unwrap_or(rest),
        _ => line,
    });
    lines.collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests {
    use syn::parse_quote;

    use super::*;

    fn text_of(item: syn::ItemStruct) -> Option<String> {
        text(&item.attrs)
    }

    #[test]
    fn reads_lines_blocks_and_attributes() {
        let lines = parse_quote! {
            /// One.
            #[allow(unused)]
            ///
            ///   Two.
            #[doc(hidden)]
            struct S;
        };
        assert_eq!(text_of(lines).unwrap(), "One.\n\n  Two.");
        let stars = parse_quote! { #[doc = "\n     * One.\n     *  - two\n     "] struct S; };
        assert_eq!(text_of(stars).unwrap(), "One.\n - two");
        let bullets = parse_quote! { #[doc = " One:\n * two\n three\n"] struct S; };
        assert_eq!(text_of(bullets).unwrap(), "One:\n* two\nthree");
        let list = parse_quote! {
            /// One:
            /// * two
            struct S;
        };
        assert_eq!(text_of(list).unwrap(), "One:\n* two");
        assert_eq!(text_of(parse_quote! { struct S; }), None);
        assert_eq!(text_of(parse_quote! { #[doc = "  "] struct S; }), None);
    }
}
