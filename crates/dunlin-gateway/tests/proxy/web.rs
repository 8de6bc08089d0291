//! The sample for a web application, with its application and curl.

use std::process::Stdio;

use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::Command;

use crate::place::{Place, sample, within};

#[tokio::test(flavor = "multi_thread")]
async fn the_application_greets_each_client_by_its_identity() {
    let place = Place::new();
    place.write("app.py", &sample("web/app.py"));
    let mut app = Command::new("python3");
    app.args(["app.py", "0"]).current_dir(place.path("")).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut app = app.kill_on_drop(true).spawn().expect("python3: `tools/setup test` installs it");
    let mut lines = BufReader::new(app.stdout.take().unwrap()).lines();
    let line = within(lines.next_line()).await.unwrap().expect("a line of the application");
    let to = line.strip_prefix("listening on ").unwrap();
    let config = sample("web/gateway.toml").replace("clients.pem", "root.pem").replace("127.0.0.1:8080", to);
    let (_gateway, port) = place.start(&config).await;
    let mut curl = Command::new("curl");
    curl.args([
        "-sS",
        "--max-time",
        "60",
        "--cacert",
        "root.pem",
        "--cert",
        "client.pem",
        "--key",
        "client.key",
    ]);
    // The application does not see the identity that the client claims.
    curl.args(["-H", "Dunlin-Client-Identity: x509:cn:admin"]).arg(format!("https://localhost:{port}/"));
    let output = within(curl.current_dir(place.path("")).kill_on_drop(true).output()).await;
    let output = output.expect("curl: `tools/setup test` installs it");
    assert_eq!(String::from_utf8_lossy(&output.stdout), "Hello, x509:cn:device-1!\n", "{output:?}");
}
