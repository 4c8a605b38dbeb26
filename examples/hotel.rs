//! Offers methods as tools, with limits on their arguments and values that only the application knows.

use std::error::Error;
use std::sync::{Arc, Mutex};

use tool_core::{Agent, FunctionTool, toolbox};
use tool_offline::OfflineModel;

/// The guest who asks, provided by the application and not by the model.
struct Guest {
    name: String,
}

/// The rooms and bookings of a hotel.
struct Hotel {
    free: Mutex<u8>,
    bookings: Mutex<Vec<String>>,
}

#[toolbox]
impl Hotel {
    /// Books rooms for the guest.
    #[tool(exclusive)]
    fn book_rooms(
        &self,
        #[param("how many rooms", range = 1..=9, default = 1)] rooms: u8,
        #[inject] guest: &Guest,
    ) -> Result<String, String> {
        let mut free = self.free.lock().map_err(|_| "the hotel is closed")?;
        if rooms > *free {
            return Err(format!("only {free} rooms are free"));
        }
        *free -= rooms;
        let booking = format!("{rooms} rooms for {}", guest.name);
        self.bookings.lock().map_err(|_| "the hotel is closed")?.push(booking.clone());
        Ok(booking)
    }

    /// Counts the free rooms.
    #[tool]
    fn free_rooms(&self) -> Result<u8, String> {
        self.free.lock().map(|free| *free).map_err(|_| "the hotel is closed".into())
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let hotel = Arc::new(Hotel { free: Mutex::new(5), bookings: Mutex::default() });
    let breakfast =
        FunctionTool::new("breakfast", || "from 7 to 10").description("Returns when breakfast is served");
    let agent = Agent::builder(OfflineModel::new()).tools(Arc::clone(&hotel)).tools(breakfast).build()?;

    for question in ["Please book 2 rooms.", "How many free rooms are there?", "When is breakfast served?"] {
        let answer = agent.ask(question).context(Guest { name: "Ada Lovelace".into() }).await?;
        println!("{question}\n    {answer}");
        for call in answer.tool_executions() {
            println!("    called {}", call.call());
        }
    }

    // Without a guest in the context, the run fails before the first request.
    if let Err(error) = agent.ask("Please book 2 rooms.").await {
        println!("\nWithout a guest: {error}");
    }
    println!("Bookings: {:?}", hotel.bookings.lock().map_err(|_| "the hotel is closed")?);
    Ok(())
}
