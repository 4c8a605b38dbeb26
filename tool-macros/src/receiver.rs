//! `&self`, `self: Arc<Self>`: how a method takes the value that it belongs to.

use syn::{GenericArgument, PathArguments, ReceiverKind, Type};

/// The ways that there are, in words.
pub(crate) const SHAPES: &str = "`&self` or `self: Arc<Self>`, or no `self` at all";

/// How a method takes its toolbox.
#[derive(Clone, Copy, PartialEq)]
pub(crate) enum Receiver {
    /// `&self`
    Reference,
    /// `self: Arc<Self>`
    Shared,
    /// `self: &Arc<Self>`
    SharedReference,
}

impl Receiver {
    /// The way in which the method takes it, if it is one that there is.
    pub(crate) fn of(receiver: &syn::Receiver) -> Option<Self> {
        match &receiver.kind {
            ReceiverKind::Reference(_, _, None) => Some(Self::Reference),
            ReceiverKind::Typed(_, ty) => match &**ty {
                Type::Reference(reference) if reference.mutability.is_none() => {
                    if is_self(&reference.elem) {
                        Some(Self::Reference)
                    } else {
                        is_arc(&reference.elem).then_some(Self::SharedReference)
                    }
                }
                other => is_arc(other).then_some(Self::Shared),
            },
            _ => None,
        }
    }
}

fn is_self(ty: &Type) -> bool {
    matches!(ty, Type::Path(path) if path.path.is_ident("Self"))
}

fn is_arc(ty: &Type) -> bool {
    let Type::Path(path) = ty else { return false };
    let Some(last) = path.path.segments.last().filter(|last| last.ident == "Arc") else { return false };
    let PathArguments::AngleBracketed(arguments) = &last.arguments else { return false };
    matches!(arguments.args.first(), Some(GenericArgument::Type(inner)) if is_self(inner))
}
