//! The output for an item with mistakes: the item without our attributes, which rustc does not know.

use proc_macro2::TokenStream;
use quote::quote;
use syn::{Attribute, FnArg, ImplItem, ItemFn, ItemImpl, Signature, Type, parse_quote};

use crate::docs;
use crate::expand;
use crate::names::{ASK, INJECT, PARAM, PRIMITIVE_TYPES, TOOL};
use crate::tool_fn::ToolFn;

/// Returns the function, a stub for its tool and the errors, so that uses of either cause no further errors.
pub(crate) fn with_errors(tool: &ToolFn, function: &ItemFn, errors: &TokenStream) -> TokenStream {
    let mut function = function.clone();
    clean_signature(&mut function.sig);
    // An `impl` block cannot contain a type, and a stub must not shadow a primitive type.
    let is_method = function.sig.receiver().is_some();
    let is_primitive = PRIMITIVE_TYPES.iter().any(|name| function.sig.ident == name);
    let stub = (!is_method && !is_primitive).then(|| expand::tool::expand_stub(tool, &function.vis));
    quote!(#function #stub #errors)
}

/// Removes from a signature with mistakes what rustc would report again.
pub(crate) fn clean_signature(signature: &mut Signature) {
    signature.variadic = None;
    for input in &mut signature.inputs {
        let FnArg::Typed(input) = input else { continue };
        input.attrs.retain(|attribute| !is_of_field(attribute));
        if is_unsized(&input.ty) {
            let ty = &input.ty;
            *input.ty = parse_quote!(&#ty);
        }
    }
}

/// Returns `true` for an attribute of a field, with which users describe parameters.
pub(crate) fn is_of_field(attribute: &Attribute) -> bool {
    attribute.path().is_ident("serde") || attribute.path().is_ident("schemars")
}

/// Returns `true` for a slice or a `str`, which cannot be passed by value.
pub(crate) fn is_unsized(ty: &Type) -> bool {
    matches!(ty, Type::Slice(_)) || matches!(ty, Type::Path(path) if path.path.is_ident("str"))
}

/// Removes our attributes, and the doc comments on parameters, which rustc does not allow.
pub(crate) fn strip_attributes(attributes: &mut Vec<Attribute>, signature: &mut Signature) {
    let is_ours =
        |attribute: &Attribute| attribute.path().is_ident(PARAM) || attribute.path().is_ident(INJECT);
    attributes.retain(|attribute| !is_tool(attribute) && !is_ours(attribute));
    for input in &mut signature.inputs {
        let attributes = match input {
            FnArg::Typed(input) => &mut input.attrs,
            FnArg::Receiver(receiver) => &mut receiver.attrs,
        };
        attributes.retain(|attribute| !docs::is_doc(attribute) && !is_ours(attribute));
    }
}

/// Removes from a block in place of an assistant what rustc would report again.
pub(crate) fn clean_block(block: &mut ItemImpl) {
    // A method without a body is not syntax.
    block.items.retain(|item| !matches!(item, ImplItem::Verbatim(_)));
    for item in &mut block.items {
        let ImplItem::Fn(method) = item else { continue };
        method.attrs.retain(|attribute| !is_ask(attribute));
        for input in &mut method.sig.inputs {
            if let FnArg::Typed(input) = input {
                input.attrs.clear();
            }
        }
    }
}

/// Returns `true` for `#[tool]` under any path.
pub(crate) fn is_tool(attribute: &Attribute) -> bool {
    attribute.path().segments.last().is_some_and(|last| last.ident == TOOL)
}

/// Returns `true` for `#[ask]`.
pub(crate) fn is_ask(attribute: &Attribute) -> bool {
    attribute.path().is_ident(ASK)
}
