//! `#[tool]` on a function.

use proc_macro2::{Literal, Span, TokenStream};
use quote::{ToTokens, format_ident, quote, quote_spanned};
use syn::{Attribute, Ident};

use crate::tool_fn::{Parameter, ParameterType, ToolFn};

/// Of
///
/// ```ignore
/// /// Sums two numbers.
/// #[tool]
/// fn sum(a: f64, b: Option<f64>) -> f64 { … }
/// ```
///
/// makes the function as it stands, and
///
/// ```ignore
/// #[doc = "The tool `sum`."]
/// struct sum {}
///
/// const _: () = {
///     use ::tool_core::__private as private;
///     use private::{PlainKind as _, RequiredByDefault as _};
///
///     static TOOL: private::FunctionTool = private::FunctionTool::new(
///         <sum as private::StaticTool>::NAME,
///         Some("Sums two numbers."),
///         &[
///             private::Parameter::new::<f64>("a", None, private::OptionalProbe::<f64>::__TOOL_CORE_IS_REQUIRED),
///             private::Parameter::new::<Option<f64>>("b", None, private::OptionalProbe::<Option<f64>>::__TOOL_CORE_IS_REQUIRED),
///         ],
///         |arguments, _| {
///             let a = arguments.take::<f64>(0);
///             let b = arguments.take::<Option<f64>>(1);
///             let (Some(a), Some(b), true) = (a, b, arguments.are_right()) else { return None };
///             let output = sum(a, b);
///             Some(private::Pending::ready(private::Returned::of(&output).__tool_core_kind().convert(output)))
///         },
///     );
///     impl private::StaticTool for sum { … }
///     private::inventory::submit! { private::Registration(&TOOL) }
/// };
/// ```
///
/// All types of parameters are named in the one static, so that rustc tells only once of a bound that does not hold.
pub(crate) fn expand_tool(tool: &ToolFn) -> TokenStream {
    let function = &tool.function;
    let ident = &function.sig.ident;
    let cfgs = function.attrs.iter().filter(|attribute| is_cfg(attribute));
    let carrier = expand_carrier(tool);
    let krate = &tool.krate;
    let private = quote!(#krate::__private);

    let name = &tool.name.text;
    let description = expand_option(tool.description.as_ref());
    let parameters = tool.parameters.iter().map(|parameter| expand_parameter(parameter, &private));
    let call = expand_call(tool, &private);

    quote! {
        #function

        #carrier

        #(#cfgs)*
        #[allow(deprecated, unused_imports)]
        const _: () = {
            use #private::{PlainKind as _, RequiredByDefault as _};

            static __TOOL: #private::FunctionTool =
                #private::FunctionTool::new(<#ident as #private::StaticTool>::NAME, #description, &[#(#parameters),*], #call);

            impl #private::StaticTool for #ident {
                const NAME: #private::ToolName = #private::ToolName::new(#name);

                fn tool() -> &'static #private::FunctionTool {
                    &__TOOL
                }
            }

            #private::inventory::submit! { #private::Registration(&__TOOL) }
        };
    }
}

/// What stands in for a tool that was refused, so that what uses it is not refused as well.
pub(crate) fn expand_stub(tool: &ToolFn) -> TokenStream {
    let ident = &tool.function.sig.ident;
    let cfgs = tool.function.attrs.iter().filter(|attribute| is_cfg(attribute));
    let carrier = expand_carrier(tool);
    let name = ident.to_string();
    let krate = &tool.krate;
    let private = quote!(#krate::__private);
    quote! {
        #carrier

        #(#cfgs)*
        #[allow(deprecated)]
        const _: () = {
            impl #private::StaticTool for #ident {
                const NAME: #private::ToolName = #private::ToolName::new(#name);

                fn tool() -> &'static #private::FunctionTool {
                    ::core::unreachable!()
                }
            }
        };
    }
}

/// `struct sum {}`
fn expand_carrier(tool: &ToolFn) -> TokenStream {
    let function = &tool.function;
    let (ident, vis) = (&function.sig.ident, &function.vis);
    let copied = function.attrs.iter().filter(|attribute| is_copied(attribute));
    let doc = format!("The tool `{}`, for `tools![{ident}]`.", tool.name.text);
    quote! {
        #[doc = #doc]
        #(#copied)*
        #[allow(dead_code, non_camel_case_types, missing_copy_implementations, missing_debug_implementations)]
        #vis struct #ident {}
    }
}

/// `Parameter::new::<f64>("a", Some("the first number"), OptionalProbe::<f64>::__TOOL_CORE_IS_REQUIRED)`
fn expand_parameter(parameter: &Parameter, private: &TokenStream) -> TokenStream {
    let ty = &parameter.ty;
    let name = &parameter.name.text;
    let description = expand_option(parameter.description.as_ref());
    let span = ty.span();
    let is_required = match &parameter.required {
        Some(required) if !required.value => quote_spanned!(span=> #private::left_out::<#ty>()),
        Some(_) => quote!(true),
        None => quote!(#private::OptionalProbe::<#ty>::__TOOL_CORE_IS_REQUIRED),
    };
    quote_spanned!(span=> #private::Parameter::new::<#ty>(#name, #description, #is_required))
}

/// The closure that reads the arguments, calls the function and converts what it returns.
///
/// Its locals are of the macro's own hygiene, so that a function `text` is not shadowed by the local `text`.
fn expand_call(tool: &ToolFn, private: &TokenStream) -> TokenStream {
    let function = &tool.function.sig.ident;
    let locals: Vec<_> = (0..tool.parameters.len()).map(local).collect();
    let takes = tool.parameters.iter().zip(&locals).enumerate().map(|(index, (parameter, local))| {
        let index = Literal::usize_unsuffixed(index);
        let ty = &parameter.ty;
        quote_spanned!(own_at(ty.span())=> let #local = arguments.take::<#ty>(#index);)
    });
    let given = tool.parameters.iter().zip(&locals).map(|(parameter, local)| match parameter.ty {
        ParameterType::Owned(_) => quote!(#local),
        ParameterType::Borrowed { .. } => quote!(&#local),
    });
    let own = own_at(tool.output_span());
    let convert = quote_spanned! {own=>
        #private::Returned::of(&output).__tool_core_kind().convert(output)
    };
    // A result that borrows from an argument is copied while the argument is there.
    let copied =
        tool.returns_text().then(|| quote_spanned!(own=> let output = ::std::string::String::from(output);));
    let convert = match copied {
        Some(copied) => quote_spanned!(own=> { #copied #convert }),
        None => convert,
    };
    let is_borrowing =
        tool.parameters.iter().any(|parameter| matches!(parameter.ty, ParameterType::Borrowed { .. }));
    let call = if tool.function.sig.asyncness.is_some() && !is_borrowing {
        quote_spanned! {own_at(function.span())=>
            #private::later(#function(#(#given),*), |output| #convert)
        }
    } else if tool.function.sig.asyncness.is_some() {
        quote_spanned! {own_at(function.span())=>
            #private::Pending::boxed(async move {
                let output = #function(#(#given),*).await;
                #convert
            })
        }
    } else {
        quote_spanned! {Span::mixed_site()=>
            {
                let output = #function(#(#given),*);
                #private::Pending::ready(#convert)
            }
        }
    };
    quote_spanned! {Span::mixed_site()=>
        |arguments, _| {
            #(#takes)*
            let (#(::core::option::Option::Some(#locals),)* true) = (#(#locals,)* arguments.are_right()) else {
                return ::core::option::Option::None;
            };
            ::core::option::Option::Some(#call)
        }
    }
}

/// The macro's own hygiene, shown at a place of the user's.
fn own_at(place: Span) -> Span {
    Span::mixed_site().located_at(place)
}

fn local(index: usize) -> Ident {
    format_ident!("argument{index}", span = Span::mixed_site())
}

fn expand_option(text: Option<&String>) -> TokenStream {
    match text {
        Some(text) => quote!(::core::option::Option::Some(#text)),
        None => quote!(::core::option::Option::None),
    }
}

/// What holds for the function holds for its tool.
fn is_copied(attribute: &Attribute) -> bool {
    is_cfg(attribute) || attribute.path().is_ident("deprecated")
}

fn is_cfg(attribute: &Attribute) -> bool {
    attribute.path().is_ident("cfg")
}

impl ToTokens for ParameterType {
    fn to_tokens(&self, tokens: &mut TokenStream) {
        match self {
            Self::Owned(ty) => ty.to_tokens(tokens),
            Self::Borrowed { owned, .. } => owned.to_tokens(tokens),
        }
    }
}
