//! The types of the tools, and the function that all of them call.

use std::sync::atomic::{AtomicUsize, Ordering};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::measure;

pub const DESCRIPTION: &str =
    "Finds places to stay, in pages of two, with the name, the address and the price of a night.";

/// Passes the names of the tools, as functions and as types, to a macro that declares the tools.
#[macro_export]
macro_rules! for_all_tools {
    ($declare:ident) => {
        $declare! {
            find_hotels FindHotels, find_hostels FindHostels, find_flats FindFlats, find_rooms FindRooms,
            find_houses FindHouses, find_farms FindFarms, find_camps FindCamps, find_boats FindBoats,
            find_castles FindCastles, find_cabins FindCabins,
            rank_hotels RankHotels, rank_hostels RankHostels, rank_flats RankFlats, rank_rooms RankRooms,
            rank_houses RankHouses, rank_farms RankFarms, rank_camps RankCamps, rank_boats RankBoats,
            rank_castles RankCastles, rank_cabins RankCabins,
        }
    };
}

macro_rules! names {
    ($($name:ident $type:ident,)*) => { &[$(stringify!($name)),*] };
}

pub const NAMES: &[&str] = for_all_tools!(names);

/// The criteria of a search.
#[derive(Deserialize, JsonSchema)]
pub struct Filter {
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
enum Comfort {
    Breakfast,
    Parking,
    Garden,
}

#[derive(Serialize)]
pub struct Page {
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

static EXECUTED: AtomicUsize = AtomicUsize::new(0);

/// Returns the number of executed calls since the last time.
pub(crate) fn take_executed() -> usize {
    EXECUTED.swap(0, Ordering::Relaxed)
}

/// The body of each tool.
pub fn look_up(filter: Filter, page: u32) -> Page {
    EXECUTED.fetch_add(1, Ordering::Relaxed);
    measure::record_call(page);
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

/// The arguments of a call, as a model writes them.
pub(crate) fn arguments(page: u32) -> serde_json::Value {
    serde_json::json!({
        "filter": { "city": "Rome", "guests": 4, "most_per_night": 150.0, "comforts": ["breakfast", "garden"] },
        "page": page,
    })
}

/// The result of the call with these arguments.
pub(crate) fn expected(page: u32) -> serde_json::Value {
    let filter = serde_json::from_value(arguments(page)["filter"].clone()).expect("it is a filter");
    serde_json::to_value(look_up(filter, page)).expect("a page is JSON")
}
