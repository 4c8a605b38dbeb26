//! Twenty tools, and a hand-written `match` that calls the same functions.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tool_core::{ToolSet, tool, tools};

use super::clock;

/// The criteria of a search.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Filter {
    /// The city, in English.
    city: String,
    /// The number of guests.
    guests: u8,
    /// The maximum price of a night, in euros.
    most_per_night: Option<f64>,
    /// The required comforts.
    comforts: Vec<Comfort>,
}

#[derive(Clone, Copy, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Comfort {
    Breakfast,
    Parking,
    Garden,
}

#[derive(Serialize)]
pub(crate) struct Page {
    page: u32,
    places: Vec<Place>,
    is_last: bool,
}

#[derive(Serialize)]
struct Place {
    name: &'static str,
    street: &'static str,
    price: f64,
    comforts: Vec<Comfort>,
}

fn look_up(filter: Filter, page: u32) -> Page {
    clock::record_call(page);
    let Filter { city, guests, most_per_night, comforts } = filter;
    let price = f64::from(guests) * 30.5;
    let place = |name, street| Place { name, street, price, comforts: comforts.clone() };
    let places = match most_per_night {
        Some(most) if most < price || city.is_empty() => Vec::new(),
        _ => {
            vec![place("Albergo del Sole", "Via del Biscione 76"), place("Casa \"Tre Pini\"", "Via Appia 9")]
        }
    };
    Page { page, places, is_last: false }
}

/// Declares a tool for each name; all do the same.
macro_rules! tools_named {
    ($($name:ident)*) => {
        pub(crate) const NAMES: &[&str] = &[$(stringify!($name)),*];

        $(
            /// Finds places to stay, in pages of two, with the name, the address and the price of a night.
            #[tool]
            fn $name(
                #[param("what the places must have")] filter: Filter,
                #[param("which page, from 1")] page: u32,
            ) -> Page {
                look_up(filter, page)
            }
        )*

        /// Returns all tools.
        pub(crate) fn all() -> ToolSet {
            tools![$($name),*]
        }

        /// Calls the function with this name and returns its output as text.
        pub(crate) fn call_by_hand(name: &str, arguments: &str) -> Result<String, Box<dyn std::error::Error + Send + Sync>> {
            match name {
                $(
                    stringify!($name) => {
                        let Arguments { filter, page } = serde_json::from_str(arguments)?;
                        Ok(serde_json::to_string(&$name(filter, page))?)
                    }
                )*
                other => Err(format!("unknown tool {other}").into()),
            }
        }
    };
}

tools_named! {
    find_hotels find_hostels find_flats find_rooms find_houses find_farms find_camps find_boats find_castles find_cabins
    rank_hotels rank_hostels rank_flats rank_rooms rank_houses rank_farms rank_camps rank_boats rank_castles rank_cabins
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Arguments {
    filter: Filter,
    page: u32,
}
