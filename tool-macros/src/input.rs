//! The parameters of a tool: those that the model fills, and those that the application does.

use proc_macro2::{Span, TokenStream};
use quote::ToTokens;
use syn::spanned::Spanned;
use syn::{
    Attribute, Expr, ExprRange, GenericArgument, Lifetime, LitBool, LitStr, Meta, Pat, PatType,
    PathArguments, Type, TypeReference,
};

use crate::attributes::ParamAttribute;
use crate::diagnostics::Diagnostics;
use crate::docs;
use crate::names::{INJECT, PARAM};
use crate::tool_fn::Name;

/// One parameter of the function.
pub(crate) enum Input {
    Argument(Box<Argument>),
    Injected(Box<Injected>),
}

/// A parameter that the model fills.
pub(crate) struct Argument {
    pub(crate) name: Name,
    pub(crate) description: Option<String>,
    /// What `required = …` says, if it is there.
    pub(crate) required: Option<LitBool>,
    pub(crate) default: Option<Expr>,
    pub(crate) range: Option<ExprRange>,
    pub(crate) length: Option<ExprRange>,
    pub(crate) pattern: Option<LitStr>,
    pub(crate) example: Option<Expr>,
    pub(crate) ty: ArgumentType,
}

/// The type that the argument is read as, and how the function takes it.
pub(crate) enum ArgumentType {
    Owned(Box<Type>),
    /// `&str`, `&[T]`, `&T`: the owned type, of which the function borrows.
    Borrowed {
        owned: TokenStream,
        lifetime: Option<Lifetime>,
        span: Span,
    },
}

/// A parameter with `#[inject]`: a value of the run's context.
pub(crate) struct Injected {
    /// The type of the value, without the reference to it.
    pub(crate) ty: Type,
    /// `&T`, not `T`.
    pub(crate) is_reference: bool,
    /// `Option<…>`
    pub(crate) is_optional: bool,
    pub(crate) span: Span,
}

impl Input {
    pub(crate) fn read(input: &PatType, diagnostics: &mut Diagnostics) -> Self {
        let Some(inject) = input.attrs.iter().find(|one| one.path().is_ident(INJECT)) else {
            return Self::Argument(Box::new(Argument::read(input, diagnostics)));
        };
        if !matches!(inject.meta, Meta::Path(_)) {
            diagnostics.error(inject, "`#[inject]` takes no words: what is injected is found by its type");
        }
        for other in &input.attrs {
            if other.path().is_ident(PARAM) {
                let message = "a parameter is filled by the model or by the application; \
                     leave out `#[param]` or `#[inject]`";
                diagnostics.error(other, message);
            } else if other.path().is_ident(INJECT) && !std::ptr::eq(other, inject) {
                diagnostics.error(other, "`#[inject]` is given twice; leave one out");
            }
        }
        Self::Injected(Box::new(Injected::of(&input.ty)))
    }
}

impl Argument {
    fn read(input: &PatType, diagnostics: &mut Diagnostics) -> Self {
        let attribute = Self::attribute(&input.attrs, diagnostics);
        let name = match (attribute.name, &*input.pat) {
            (Some(name), _) => Name::explicit(&name),
            (None, Pat::Ident(pattern)) => Name::of(&pattern.ident),
            (None, other) => Name { text: String::new(), span: other.span(), is_explicit: false },
        };
        Self {
            name,
            description: attribute.description.map(|text| text.value()).or_else(|| docs::text(&input.attrs)),
            required: attribute.required,
            default: attribute.default,
            range: attribute.range,
            length: attribute.length,
            pattern: attribute.pattern,
            example: attribute.example,
            ty: ArgumentType::of(&input.ty),
        }
    }

    fn attribute(attributes: &[Attribute], diagnostics: &mut Diagnostics) -> ParamAttribute {
        let mut ours = attributes.iter().filter(|one| one.path().is_ident(PARAM));
        let first = ours.next().map(|one| ParamAttribute::from_attribute(one, diagnostics));
        for second in ours {
            diagnostics.error(second, "`#[param]` is given twice; put everything into one");
        }
        first.unwrap_or_default()
    }
}

impl ArgumentType {
    fn of(ty: &Type) -> Self {
        match ty {
            Type::Reference(TypeReference { elem, lifetime, .. }) => {
                let span = ty.span();
                Self::Borrowed { owned: owned(elem, span), lifetime: lifetime.clone(), span }
            }
            Type::Paren(inner) => Self::of(&inner.elem),
            Type::Group(inner) => Self::of(&inner.elem),
            other => Self::Owned(Box::new(other.clone())),
        }
    }

    pub(crate) fn span(&self) -> Span {
        match self {
            Self::Owned(ty) => ty.span(),
            Self::Borrowed { span, .. } => *span,
        }
    }
}

impl ToTokens for ArgumentType {
    fn to_tokens(&self, tokens: &mut TokenStream) {
        match self {
            Self::Owned(ty) => ty.to_tokens(tokens),
            Self::Borrowed { owned, .. } => owned.to_tokens(tokens),
        }
    }
}

impl Injected {
    fn of(ty: &Type) -> Self {
        let span = ty.span();
        match ty {
            Type::Reference(reference) => {
                Self { ty: (*reference.elem).clone(), is_reference: true, is_optional: false, span }
            }
            Type::Paren(inner) => Self::of(&inner.elem),
            Type::Group(inner) => Self::of(&inner.elem),
            other => match inside_option(other) {
                Some(inner) => Self { is_optional: true, span, ..Self::of(inner) },
                None => Self { ty: other.clone(), is_reference: false, is_optional: false, span },
            },
        }
    }
}

/// `T` of `Option<T>`.
pub(crate) fn inside_option(ty: &Type) -> Option<&Type> {
    let Type::Path(path) = ty else { return None };
    let last = path.path.segments.last().filter(|last| last.ident == "Option")?;
    let PathArguments::AngleBracketed(arguments) = &last.arguments else { return None };
    match arguments.args.first() {
        Some(GenericArgument::Type(inner)) if arguments.args.len() == 1 => Some(inner),
        _ => None,
    }
}

/// `&str`, for any lifetime: a result that is copied, as it may borrow from an argument.
pub(crate) fn is_text(ty: &Type) -> bool {
    matches!(ty, Type::Reference(TypeReference { mutability: None, elem, .. })
        if matches!(&**elem, Type::Path(path) if path.path.is_ident("str")))
}

/// `String` for `str`, `Vec<T>` for `[T]`, `PathBuf` for `Path`, else the type itself, which need not be `Clone`.
fn owned(borrowed: &Type, span: Span) -> TokenStream {
    match borrowed {
        Type::Path(path) if path.path.is_ident("str") => quote::quote_spanned!(span=> ::std::string::String),
        // By `ToOwned`, as a user may have a `Path` of their own.
        Type::Path(path) if path.path.segments.last().is_some_and(|last| last.ident == "Path") => {
            quote::quote_spanned!(span=> <#borrowed as ::std::borrow::ToOwned>::Owned)
        }
        Type::Slice(slice) => {
            let element = &slice.elem;
            quote::quote_spanned!(span=> ::std::vec::Vec<#element>)
        }
        other => other.to_token_stream(),
    }
}
