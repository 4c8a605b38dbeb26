//! The output for an item with mistakes: the item without our attributes, which rustc does not know.

use proc_macro2::TokenStream;
use quote::quote;
use syn::{Attribute, FnArg, ItemFn, Signature};

use crate::docs;
use crate::expand;
use crate::names::{ASK, INJECT, PARAM, PRIMITIVE_TYPES, TOOL};
use crate::tool_fn::ToolFn;

/// Returns the function, a stub for its tool and the errors, so that uses of either cause no further errors.
///
/// Variadic parameters are dropped because rustc would reject them again.
pub(crate) fn with_errors(tool: &ToolFn, function: &ItemFn, errors: &TokenStream) -> TokenStream {
    let mut function = function.clone();
    function.sig.variadic = None;
    // An `impl` block cannot contain a type, and a stub must not shadow a primitive type.
    let is_method = function.sig.receiver().is_some();
    let is_primitive = PRIMITIVE_TYPES.iter().any(|name| function.sig.ident == name);
    let stub = (!is_method && !is_primitive).then(|| expand::tool::expand_stub(tool, &function.vis));
    quote!(#function #stub #errors)
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

/// Returns `true` for `#[tool]` under any path.
pub(crate) fn is_tool(attribute: &Attribute) -> bool {
    attribute.path().segments.last().is_some_and(|last| last.ident == TOOL)
}

/// Returns `true` for `#[ask]`.
pub(crate) fn is_ask(attribute: &Attribute) -> bool {
    attribute.path().is_ident(ASK)
}
