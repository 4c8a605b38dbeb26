//! The user's item, cleaned of what only we understand.

use proc_macro2::TokenStream;
use quote::quote;
use syn::{Attribute, FnArg, ItemFn, Signature};

use crate::docs;
use crate::expand;
use crate::names::{INJECT, PARAM, PRIMITIVE_TYPES, TOOL};
use crate::tool_fn::ToolFn;

/// What is emitted beside our errors: the item and a stand-in for its tool, so that nothing else misses
/// them; but no variadics, which rustc would refuse once more.
pub(crate) fn with_errors(tool: &ToolFn, function: &ItemFn, errors: &TokenStream) -> TokenStream {
    let mut function = function.clone();
    function.sig.variadic = None;
    // No type can stand in an `impl` block, and none may hide a primitive one.
    let is_method = function.sig.receiver().is_some();
    let is_primitive = PRIMITIVE_TYPES.iter().any(|name| function.sig.ident == name);
    let stub = (!is_method && !is_primitive).then(|| expand::tool::expand_stub(tool, &function.vis));
    quote!(#function #stub #errors)
}

/// Takes our attributes and the docs off the parameters: rustc knows the one not, and allows the other
/// not there. It is done on the way to errors too, so that one mistake gives one message.
pub(crate) fn clean(attributes: &mut Vec<Attribute>, signature: &mut Signature) {
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

/// It is `#[tool]`, by whatever path.
pub(crate) fn is_tool(attribute: &Attribute) -> bool {
    attribute.path().segments.last().is_some_and(|last| last.ident == TOOL)
}
