//! Exports the activity of an agent as OpenTelemetry traces over OTLP/HTTP.
//!
//! They are sent to the collector at `OTEL_EXPORTER_OTLP_ENDPOINT`, such as `http://localhost:4318`, or by default to a
//! collector in this program, which prints them.

use std::env;
use std::error::Error;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};

use opentelemetry::trace::TracerProvider as _;
use opentelemetry_otlp::{Protocol, SpanExporter, WithExportConfig};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::trace::SdkTracerProvider;
use serde_json::Value;
use tool_core::{Agent, tool, tools};
use tool_offline::OfflineModel;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;

/// Sums two numbers.
#[tool]
fn sum(a: f64, b: f64) -> f64 {
    a + b
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    // The exporter's HTTP client needs a TLS provider; this is the one that `tool-openai` uses.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let exporter = SpanExporter::builder().with_http().with_protocol(Protocol::HttpJson);
    let exporter = match env::var("OTEL_EXPORTER_OTLP_ENDPOINT") {
        Ok(_) => exporter, // reads the variable itself
        Err(_) => exporter.with_endpoint(format!("http://{}/v1/traces", start_collector()?)),
    };
    let provider = SdkTracerProvider::builder()
        .with_resource(Resource::builder().with_service_name("otlp-example").build())
        .with_batch_exporter(exporter.build()?)
        .build();
    let layer = tracing_opentelemetry::layer().with_tracer(provider.tracer("tool_core"));
    tracing_subscriber::registry()
        .with(layer.with_location(false).with_threads(false).with_tracked_inactivity(false))
        .init();

    let agent = Agent::builder(OfflineModel::new()).name("arithmetic").tools(tools![sum]).build()?;
    println!("{}", agent.ask("What is the sum of 2.5 and 40?").conversation("chat-7").await?);

    provider.shutdown()?; // sends the remaining spans
    Ok(())
}

/// Starts a local collector and returns its address.
fn start_collector() -> io::Result<SocketAddr> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let address = listener.local_addr()?;
    std::thread::spawn(move || {
        for request in listener.incoming() {
            if let Err(error) = request.map_err(Into::into).and_then(|request| print_spans(&request)) {
                eprintln!("not a trace: {error}");
            }
        }
    });
    Ok(address)
}

/// Prints the spans of a request and responds to it.
fn print_spans(mut request: &TcpStream) -> Result<(), Box<dyn Error>> {
    let mut reader = BufReader::new(request);
    let (mut length, mut line) = (0, String::new());
    while reader.read_line(&mut line)? > 2 {
        if let Some((_, value)) = line.to_lowercase().split_once("content-length:") {
            length = value.trim().parse()?;
        }
        line.clear();
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body)?;
    let trace: Value = serde_json::from_slice(&body)?;
    for span in trace["resourceSpans"][0]["scopeSpans"][0]["spans"].as_array().into_iter().flatten() {
        println!("\n{}", span["name"].as_str().unwrap_or_default());
        for attribute in span["attributes"].as_array().into_iter().flatten() {
            let value = attribute["value"].as_object().and_then(|value| value.values().next());
            println!(
                "    {} = {}",
                attribute["key"].as_str().unwrap_or_default(),
                value.unwrap_or(&Value::Null)
            );
        }
    }
    request.write_all(b"HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: 2\r\n\r\n{}")?;
    Ok(())
}
