//! The closure that reads the arguments, calls the function and converts its output.
//!
//! Its locals have the macro's hygiene, so that a local does not shadow a function of the same name.

use proc_macro2::{Literal, Span, TokenStream};
use quote::{format_ident, quote, quote_spanned};
use syn::Ident;

use super::details::expand_default;
use super::tokens::mixed_site_at;
use crate::parameter::{InjectedParameter, ModelParameter, Parameter, ParameterType};
use crate::receiver::Receiver;
use crate::tool_fn::ToolFn;

/// Returns `|arguments, context| { … }` for a function and `|this, arguments, context| { … }` for a method, whose
/// `path` includes the type: `<Self>::add`.
pub(super) fn expand_call(tool: &ToolFn, path: &TokenStream, private: &TokenStream) -> TokenStream {
    let span = Span::mixed_site();
    let call = Call { tool, path, private };
    let (locals, values): (Vec<_>, Vec<_>) = call.take_values().unzip();
    let pending = call.expand_pending();
    let this = tool.is_method.then(|| match tool.signature.receiver() {
        Some(_) => quote_spanned!(span=> this,),
        None => quote!(_,),
    });
    // Without a value, the method is only defined.
    let receiver = call.receiver().map(|_| quote_spanned!(span=> let this = this?;));
    let context = match tool.injected_parameters().next() {
        Some(_) => quote_spanned!(span=> context),
        None => quote!(_),
    };
    quote_spanned! {span=>
        |#this arguments, #context| {
            let (#(::core::option::Option::Some(#locals),)* true,) = (#(#values,)* arguments.are_valid(),) else {
                return ::core::option::Option::None;
            };
            #receiver
            ::core::option::Option::Some(#pending)
        }
    }
}

struct Call<'a> {
    tool: &'a ToolFn,
    path: &'a TokenStream,
    private: &'a TokenStream,
}

impl Call<'_> {
    fn is_blocking(&self) -> bool {
        self.tool.options.blocking.is_some()
    }

    /// Returns each parameter with its position in the function and its index in the table of model parameters.
    fn parameters(&self) -> impl Iterator<Item = (usize, usize, &Parameter)> {
        let mut index = 0;
        self.tool.parameters.iter().enumerate().map(move |(position, parameter)| {
            let entry = (position, index, parameter);
            index += usize::from(matches!(parameter, Parameter::Model(_)));
            entry
        })
    }

    /// Returns the local and the expression of each parameter's value, such as `arguments.take::<f64>(0)`. All of them are evaluated,
    /// so that every mistake is recorded.
    fn take_values(&self) -> impl Iterator<Item = (Ident, TokenStream)> {
        self.parameters().map(|(position, index, parameter)| {
            let value = match parameter {
                Parameter::Model(parameter) => self.take(index, parameter),
                Parameter::Injected(parameter) => self.inject(parameter),
            };
            (local(position), value)
        })
    }

    fn take(&self, index: usize, parameter: &ModelParameter) -> TokenStream {
        let private = self.private;
        let index = Literal::usize_unsuffixed(index);
        let ty = &parameter.ty;
        let span = mixed_site_at(ty.span());
        match &parameter.options.default {
            None => quote_spanned!(span=> arguments.take::<#ty>(#index)),
            Some(default) => {
                let default = expand_default(parameter, default, private);
                quote_spanned! {span=>
                    arguments.take_or::<#ty>(#index, #default, |value| #private::Shown(value).__tool_core_json())
                }
            }
        }
    }

    /// Returns the expression that looks up an injected value. It is `None` if a required value is missing.
    ///
    /// A blocking function may outlive the call, so it looks up references again in a context that it owns.
    fn inject(&self, parameter: &InjectedParameter) -> TokenStream {
        let private = self.private;
        let InjectedParameter { ty, is_reference, is_optional, span } = parameter;
        let span = mixed_site_at(*span);
        let found = if *is_optional {
            quote_spanned!(span=> ::core::option::Option::Some(#private::look_up::<#ty>(context)))
        } else {
            quote_spanned!(span=> arguments.inject::<#ty>(context))
        };
        match (is_reference, is_optional) {
            (true, _) if self.is_blocking() => quote_spanned!(span=> #found.map(|_| ())),
            (true, _) => found,
            (false, false) => quote_spanned!(span=> #found.map(|value| #private::for_call::<#ty>(value))),
            (false, true) => {
                quote_spanned!(span=> #found.map(|value| value.map(|value| #private::for_call::<#ty>(value))))
            }
        }
    }

    /// Returns the expression that calls the function and evaluates to a `Pending`.
    fn expand_pending(&self) -> TokenStream {
        let private = self.private;
        let (tool, path) = (self.tool, self.path);
        let arguments = self.function_arguments();
        let is_async = tool.signature.asyncness.is_some();
        let span = mixed_site_at(tool.signature.ident.span());
        let convert = self.convert();
        if self.is_blocking() {
            let clones = self.clone_borrowed();
            let look_ups = self.look_up_references();
            return quote_spanned! {span=>
                {
                    #clones
                    #private::blocking(move || {
                        #look_ups
                        let output = #path(#(#arguments),*);
                        #convert
                    })
                }
            };
        }
        if is_async && !tool.borrows_arguments() {
            quote_spanned!(span=> #private::later(#path(#(#arguments),*), |output| #convert))
        } else if is_async {
            quote_spanned! {span=>
                #private::Pending::boxed(async move {
                    let output = #path(#(#arguments),*).await;
                    #convert
                })
            }
        } else {
            quote_spanned! {Span::mixed_site()=>
                {
                    let output = #path(#(#arguments),*);
                    #private::Pending::ready(#convert)
                }
            }
        }
    }

    /// Returns the arguments of the function, the receiver first.
    fn function_arguments(&self) -> Vec<TokenStream> {
        let receiver = self.receiver().map(|receiver| match receiver {
            Receiver::Reference => quote_spanned!(Span::mixed_site()=> &**this),
            Receiver::Arc => quote_spanned!(Span::mixed_site()=> ::core::clone::Clone::clone(this)),
            Receiver::ArcReference => quote_spanned!(Span::mixed_site()=> this),
        });
        let arguments = self.tool.parameters.iter().enumerate().map(|(position, parameter)| {
            let local = local(position);
            match parameter {
                Parameter::Model(parameter) if matches!(parameter.ty, ParameterType::Borrowed { .. }) => {
                    quote!(&#local)
                }
                _ => quote!(#local),
            }
        });
        receiver.into_iter().chain(arguments).collect()
    }

    fn receiver(&self) -> Option<Receiver> {
        self.tool.signature.receiver().and_then(Receiver::from_syn)
    }

    /// Clones what is borrowed from the caller, for a blocking call to own.
    fn clone_borrowed(&self) -> TokenStream {
        let span = Span::mixed_site();
        let this =
            self.receiver().map(|_| quote_spanned!(span=> let this = ::core::clone::Clone::clone(this);));
        let context = self
            .tool
            .injected_parameters()
            .any(|parameter| parameter.is_reference)
            .then(|| quote_spanned!(span=> let context = ::core::clone::Clone::clone(context);));
        quote!(#this #context)
    }

    /// Looks up the injected references inside of a blocking call. They were present when the arguments were read.
    fn look_up_references(&self) -> TokenStream {
        let private = self.private;
        let span = Span::mixed_site();
        let this = self.receiver().map(|_| quote_spanned!(span=> let this = &this;));
        let values = self.tool.parameters.iter().enumerate().filter_map(|(position, parameter)| {
            let Parameter::Injected(parameter) = parameter else { return None };
            let (local, ty) = (local(position), &parameter.ty);
            if !parameter.is_reference {
                return None;
            }
            Some(match parameter.is_optional {
                true => quote_spanned! {span=>
                    let () = #local;
                    let #local = #private::look_up::<#ty>(&context);
                },
                false => quote_spanned! {span=>
                    let () = #local;
                    let #local = match #private::look_up::<#ty>(&context) {
                        ::core::option::Option::Some(value) => value,
                        ::core::option::Option::None => return ::core::result::Result::Err(#private::missing_context::<#ty>()),
                    };
                },
            })
        });
        quote!(#this #(#values)*)
    }

    /// Returns the expression that converts `output`, the function's return value.
    fn convert(&self) -> TokenStream {
        let private = self.private;
        let span = mixed_site_at(self.tool.output_span());
        if let Some(path) = &self.tool.options.convert {
            return quote_spanned! {span=>
                #private::Returned::new(&output).__tool_core_kind().and_then(output, |output| {
                    let output = #path(output);
                    #private::Returned::new(&output).__tool_core_kind().convert(output)
                })
            };
        }
        let convert =
            quote_spanned!(span=> #private::Returned::new(&output).__tool_core_kind().convert(output));
        // A `&str` may borrow from an argument, which is dropped after the call.
        match self.tool.returns_str() {
            true => quote_spanned!(span=> { let output = ::std::string::String::from(output); #convert }),
            false => convert,
        }
    }
}

fn local(position: usize) -> Ident {
    format_ident!("argument{position}", span = Span::mixed_site())
}
