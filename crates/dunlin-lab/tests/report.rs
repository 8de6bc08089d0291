//! Tests `dunlin-lab report`: its page, and its errors.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test may fail")]

use std::process::{Command, Stdio};

use dunlin_lab::report::{Report, Row};
use serde_json::Value;

use dunlin_tests::place::Place;

/// Shows the page at two widths and measures its elements.
const MEASURE: &str = include_str!("data/measure.html");

fn write(place: &Place, name: &str, report: &Report) {
    std::fs::create_dir_all(place.path(name).parent().unwrap()).unwrap();
    place.write(name, serde_json::to_vec_pretty(report).unwrap());
}

/// Makes rows as `caching` does, which needs real sockets and privileges.
fn caching() -> Report {
    let row = |stack: &str, mtu: u32, tls: f64, packets: f64| {
        let layers = [("link_bytes", 14.0), ("ip_bytes", 20.0), ("transport_bytes", 32.0)];
        let total = tls + layers.iter().map(|(_, bytes)| bytes * packets).sum::<f64>();
        let row = Row::new().with("stack", stack).with("credential", "rsa2048").with("mtu", mtu);
        let row = row.with("mode", "vanilla").with("connection", "initial").figure("total_bytes", &[total]);
        let row = if mtu == 1500 { row.paper("total_bytes", 6043.0) } else { row };
        let row = layers.into_iter().fold(row, |row, (name, bytes)| row.figure(name, &[bytes * packets]));
        row.figure("tls_bytes", &[tls]).figure("packets", &[packets])
    };
    let rows = vec![
        row("dunlin", 127, 4287.0, 87.0),
        row("openssl", 127, 4575.0, 94.0),
        row("dunlin", 1500, 4287.0, 16.0),
        row("openssl", 1500, 4575.0, 19.0),
    ];
    Report::new("caching", "dunlin-lab run caching --json lab/caching.json".into(), 1, 10, rows)
}

/// Makes rows as `link` does.
fn link() -> Report {
    let row = |delay: u32, busy: bool, error: f64| {
        let row = Row::new().with("delay_ms", delay).with("busy", busy);
        let trip = 2.0 * f64::from(delay) + error;
        row.figure("round_trip_ms", &[trip]).figure("round_trip_error_ms", &[error])
    };
    let rate = Row::new().with("rate_kbit_per_s", 250).figure("carried_kbit_per_s", &[250.25]);
    let rows = vec![row(5, false, 0.513), row(5, true, 0.549), row(30, false, 0.333), rate];
    Report::new("link", "dunlin-lab run link --json lab/link.json".into(), 1, 100, rows)
}

/// Makes rows as `handover` does on real sockets: two schemes of Dunlin and one scheme of a rival, with and
/// without a NAT.
fn handover() -> Report {
    let row = |stack: &str, scheme: &str, nat: &str, delay: u32| {
        let row = Row::new().with("stack", stack).with("scheme", scheme).with("protocol", "dtls1.2");
        let row = row.with("server", "listening").with("nat", nat).with("delay_ms", delay);
        let row = row.with("loss_percent", 0).with("downtime_ms", 5).with("way", "real");
        let row = row.figure("wall_clock_s", &[96.5]).figure("lost_per_handover_ms", &[-2.5]);
        let saved = if stack == "dunlin" { "saved_percent" } else { "saved_over_openssl_percent" };
        let row = row.figure(saved, &[11.5]);
        let row = if nat == "none" { row.paper(saved, 13.63) } else { row };
        row.figure("messages_acknowledged", &[600.0])
    };
    let schemes = [("dunlin", "cid_multihomed_duplicates"), ("dunlin", "tcs_message"), ("mbedtls", "cid12")];
    let rows = schemes.iter().flat_map(|(stack, scheme)| {
        let plain = [5, 30, 100].map(|delay| row(stack, scheme, "none", delay));
        plain.into_iter().chain([row(stack, scheme, "port_restricted", 30)])
    });
    Report::new("handover", "dunlin-lab run handover --quick --json lab/b.json".into(), 1, 1, rows.collect())
}

/// Makes an unknown experiment with text that is too long for its place.
fn alchemy() -> Report {
    let row = |stack: &str, metal: &str, gold: f64| {
        let long = "a very long way to say how it was done, longer than any plot is wide ".repeat(3);
        let row =
            Row::new().with("stack", stack).with("metal", metal).with("way", format!("{metal}, {long}"));
        row.figure("gold_percent", &[gold])
    };
    let rows = vec![row("dunlin", "lead", -2.5e8), row("a stack with a long name", "tin", 1e9)];
    Report::new("alchemy", "dunlin-lab run alchemy".into(), 1, 1, rows)
}

fn count(text: &str, what: &str) -> usize {
    text.matches(what).count()
}

/// Reads the rows of a report.
fn rows(place: &Place, name: &str) -> Vec<Value> {
    let report: Value = serde_json::from_str(&place.read(name)).unwrap();
    report["rows"].as_array().unwrap().clone()
}

#[test]
fn report_of_a_directory_is_one_page() {
    let place = Place::new();
    place.lab("run key-exchange --way virtual --quick --json lab/key-exchange.json");
    write(&place, "lab/link.json", &link());
    place.write("lab/notes.txt", "not of interest");
    let told = place.lab("report");
    // The rows include those that the feature `legacy-lab` adds.
    let rows = rows(&place, "lab/key-exchange.json").len() + 4;
    assert_eq!(told, format!("lab/report.html: experiments 2, rows {rows}\n"));
    let page = place.read("lab/report.html");
    let first = page.find("<h2>key-exchange</h2>").unwrap();
    let second = page.find("<h2>link</h2>").unwrap();
    assert!(first < second, "by name");
    assert_eq!(count(&page, "<tbody>"), 2);
    assert_eq!(count(&page, "<tr"), 2 + rows);
    assert!(page.contains(
        "<code>dunlin-lab run key-exchange --way virtual --quick --json lab/key-exchange.json</code>"
    ));
    // The draft gives 615 bytes for raw public keys. The row is in the same table.
    assert!(page.contains("<td class=\"n paper\">615</td>"), "{page}");
    // A second report replaces the first one and contains the files that exist now.
    write(&place, "lab/a.json", &caching());
    assert!(place.lab("report").contains(&format!("experiments 3, rows {}", rows + 4)));
}

/// Makes rows as `policy` does. The highest scheme takes 0.9 times as long as in the paper, so no reduction
/// is as large as the paper's, except Apache's for 10 MB.
fn policy() -> Report {
    const SIZES: [u32; 4] = [10 << 10, 100 << 10, 1 << 20, 10 << 20];
    let times = [
        ("software", "none", "rsa4096", [7410.0, 8289.0, 15_025.0, 78_805.0]),
        ("software", "lowest", "rsa1024", [785.0, 1456.0, 6900.0, 66_672.0]),
        ("software", "renegotiation_highest", "rsa4096", [15_105.0, 15_770.0, 22_478.0, 86_297.0]),
        ("software", "renegotiation_lowest", "rsa1024", [1689.0, 2299.0, 7646.0, 67_415.0]),
    ];
    let mut rows = Vec::new();
    for (at, size) in SIZES.into_iter().enumerate() {
        for (aes, strategy, credential, papers) in times {
            for stack in ["dunlin", "apache"] {
                let scale = match (stack, credential, at) {
                    (_, "rsa4096", _) => 0.9,
                    ("apache", _, 3) => 0.8,
                    _ => 1.0,
                };
                let row =
                    Row::new().with("stack", stack).with("strategy", strategy).with("client", "openssl");
                let row = row.with("credential", credential).with("size_bytes", size).with("aes", aes);
                rows.push(row.figure("server_us", &[papers[at] * scale]).paper("server_us", papers[at]));
            }
        }
    }
    let command = "dunlin-lab run policy --runs 3 --seed 7 --json 'my rows.json'";
    let packages = [("apache2-bin".to_owned(), "2.4.71-1".to_owned())].into();
    let date = "2026-11-29T12:00:00Z".to_owned();
    Report { date, packages, ..Report::new("policy", command.into(), 7, 3, rows) }
}

#[test]
fn tables_of_policy_compare_like_for_like_with_the_paper() {
    let place = Place::new();
    write(&place, "policy.json", &policy());
    let tool = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tools/policy-tables");
    let output = Command::new("python3").arg(tool).arg(place.path("policy.json")).output();
    let output = output.expect("python3 is missing: `tools/setup test` installs it");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let tables = String::from_utf8(output.stdout).unwrap();
    for line in [
        "| scenario 1: highest, software AES | the paper, RSA-4096 | 7410 | 8289 | 15 025 | 78 805 |",
        "| | Dunlin, RSA-4096 | 6669 | 7460 | 13 522 | 70 924 |",
        "| scenario 2: lowest, software AES | the paper, RSA-1024 | 1689 | 2299 | 7646 | 67 415 |",
        "| | Apache, RSA-1024 | 1689 | 2299 | 7646 | 53 932 |",
        "| | Dunlin, RSA-1024 | 88.23 % | 80.48 % | 48.97 % | 6.00 % |",
        "| | Apache, RSA-1024 | 88.23 % | 80.48 % | 48.97 % | **24.80 %** |",
        "* Dunlin, RSA-1024: none of the 8 cells reaches the paper's reduction.",
        "* Apache, RSA-1024: 2 of 8 cells reach the paper's reduction: Table 3, software AES, 10 MB; Table 4, software AES, \
         10 MB. The others do not: Table 3, software AES, 10 KB, 100 KB and 1 MB; Table 4, software AES, 10 KB, 100 KB and 1 MB.",
    ] {
        assert!(tables.lines().any(|other| other == line), "{line}\n{tables}");
    }
    let origin = "Command: `dunlin-lab run policy --runs 3 --seed 7 --json 'my rows.json'`, seed 7, started 2026-11-29T12:00:00Z. ";
    assert!(tables.contains(origin) && tables.contains("Beside it: apache2-bin 2.4.71-1."), "{tables}");
    // Neither hardware AES nor RSA-2048 was measured.
    assert!(!tables.contains("scenario 3: ") && !tables.contains("RSA-2048"), "{tables}");
}

#[test]
fn report_reads_files_in_the_given_order() {
    let place = Place::new();
    write(&place, "z.json", &caching());
    write(&place, "a.json", &link());
    assert_eq!(
        place.lab("report z.json a.json --out pages/today"),
        "pages/today/report.html: experiments 2, rows 8\n"
    );
    let page = place.read("pages/today/report.html");
    assert!(page.find("<h2>caching</h2>").unwrap() < page.find("<h2>link</h2>").unwrap());
    place.lab("report --in . --out here");
    let page = place.read("here/report.html");
    assert!(page.find("<h2>link</h2>").unwrap() < page.find("<h2>caching</h2>").unwrap());
}

#[test]
fn unreadable_file_fails_with_one_line_and_writes_nothing() {
    let place = Place::new();
    let advice = "make one by `dunlin-lab run caching --json lab/caching.json`";
    let line = place.lab_fails("report", 1);
    assert!(line.contains("lab: no such directory") && line.contains(advice), "{line}");
    std::fs::create_dir(place.path("lab")).unwrap();
    let line = place.lab_fails("report", 1);
    assert!(line.contains("lab: no *.json in it") && line.contains(advice), "{line}");
    let line = place.lab_fails("report lab", 1);
    assert!(line.contains("lab: it is a directory; give it with --in"), "{line}");

    write(&place, "good.json", &link());
    let text = place.read("good.json");
    place.write("nested.json", text.replacen(": 0.513", ": [0.513]", 1));
    place.write("half.json", &text[..text.len() / 2]);
    place.write("foreign.json", "{\"flows\": []}");
    place.write("\u{1b}name.json", text.replacen("\"busy\"", "\"\\u001b\\n\"", 1).replacen("false", "{}", 1));
    let wrong = [
        ("nested.json", "nested.json: rows[0].round_trip_error_ms: invalid type: sequence"),
        ("half.json", "half.json: EOF while parsing"),
        ("foreign.json", "foreign.json: missing field `experiment`"),
        ("'\u{1b}name.json'", "\\u{1b}name.json: rows[0].\\u{1b}\\n: invalid type: map"),
        ("nowhere.json", "nowhere.json: no such file"),
    ];
    for (file, told) in wrong {
        let line = place.lab_fails(&format!("report good.json {file} --out pages"), 1);
        assert!(line.contains(told), "{line}");
    }
    let line = place.lab_fails(&format!("report {}", "good.json ".repeat(65)), 1);
    assert!(line.contains("65 files, but a page shows at most 64"), "{line}");
    place.lab_fails("report good.json --in .", 2);
    assert!(!place.path("pages").exists() && !place.path("lab/report.html").exists());
}

/// The output of Chromium for a page.
struct Shown {
    /// The measurements at both widths.
    pages: Vec<Value>,
    /// The messages on the console.
    console: Vec<String>,
    screenshot: Screenshot,
}

/// Pixels of three bytes each.
struct Screenshot(Vec<u8>);

impl Screenshot {
    fn read(png: &[u8]) -> Self {
        let mut decoder = png::Decoder::new(std::io::Cursor::new(png));
        decoder.set_transformations(
            png::Transformations::normalize_to_color8() | png::Transformations::STRIP_16,
        );
        let mut reader = decoder.read_info().unwrap();
        let mut pixels = vec![0; reader.output_buffer_size().unwrap()];
        let info = reader.next_frame(&mut pixels).unwrap();
        let samples = info.color_type.samples();
        assert!(samples >= 3, "a screenshot in colour");
        Self(pixels[..info.buffer_size()].chunks(samples).flat_map(|pixel| pixel[..3].to_vec()).collect())
    }

    /// Counts the pixels of a colour, which is given like `rgb(1, 2, 3)`.
    fn count(&self, colour: &str) -> usize {
        let numbers = colour.strip_prefix("rgb(").and_then(|rest| rest.strip_suffix(')')).unwrap();
        let wanted: Vec<u8> = numbers.split(", ").map(|number| number.parse().unwrap()).collect();
        self.0.chunks(3).filter(|pixel| *pixel == wanted).count()
    }
}

/// Shows report.html of the place in a browser without a network and with its own profile.
fn shown(place: &Place, scheme: &str) -> Shown {
    let browser = ["chromium", "google-chrome"].into_iter().find(|name| {
        let version =
            Command::new(name).arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status();
        version.is_ok_and(|status| status.success())
    });
    let browser = browser.expect("no browser: `tools/setup test` installs chromium");
    place.write("measure.html", MEASURE);
    let output = Command::new("timeout")
        .args(["--kill-after=5", "60", browser, "--headless", "--no-sandbox", "--disable-gpu"])
        .args(["--no-first-run", "--allow-file-access-from-files", "--enable-logging=stderr"])
        .arg(format!("--user-data-dir={}", place.path("profile").display()))
        .arg("--host-resolver-rules=MAP * ~NOTFOUND")
        .arg(format!("--blink-settings=preferredColorScheme={scheme}"))
        .args(["--hide-scrollbars", "--window-size=1400,2400", "--dump-dom"])
        .arg(format!("--screenshot={}", place.path("page.png").display()))
        .arg(format!("file://{}", place.path("measure.html").display()))
        .env("HOME", place.path("home"))
        .output()
        .unwrap();
    let dom = String::from_utf8_lossy(&output.stdout);
    let log = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{log}");
    let measured = dom.split_once("<pre>").and_then(|(_, rest)| Some(rest.split_once("</pre>")?.0));
    let pages = serde_json::from_str(measured.expect("what was measured")).expect(&dom);
    let console = log.lines().filter(|line| line.contains("CONSOLE")).map(str::to_owned).collect();
    let screenshot = Screenshot::read(&std::fs::read(place.path("page.png")).unwrap());
    Shown { pages, console, screenshot }
}

#[test]
fn browser_shows_the_page_at_both_widths_in_light_and_dark() {
    let place = Place::new();
    place.lab("run key-exchange --way virtual --quick --json lab/key-exchange.json");
    for (name, report) in
        [("alchemy", alchemy()), ("caching", caching()), ("handover", handover()), ("link", link())]
    {
        write(&place, &format!("lab/{name}.json"), &report);
    }
    place.lab("report --out .");
    let page = place.read("report.html");
    let (_, handover) = page.split_once("<h2>handover</h2>").unwrap();
    let handover = handover.split_once("</section>").unwrap().0;
    let basis = ["<span>one quick run</span>", "Figures are of one quick run."];
    assert_eq!(basis.map(|text| count(handover, text)), [5, 1], "{handover}");
    assert!(handover.contains(">the paper, delay 100 ms</span>"), "{handover}");
    for fetched in ["http:", "https:", "url(", "@import", "src=", "<script", "<link"] {
        assert!(!page.contains(fetched), "{fetched}");
    }
    // The expected bars are the parts of each row and the paper's figures: a total for two rows of caching,
    // and the flights of every row of the draft. A key exchange has a bar for its bytes, perhaps one for the
    // paper's, and one for each part of the processing time.
    let key_exchange = rows(&place, "lab/key-exchange.json");
    let bars = |row: &Value| match row["flight1_bytes"].is_number() {
        true => 3 * 2,
        false if row["overtake_kbit_per_s"].is_number() => 0,
        false => {
            let parts = ["client", "server"]
                .iter()
                .flat_map(|side| ["key", "signature", "common"].map(|part| format!("{side}_{part}_us")));
            let spent = parts.filter(|part| row[part].as_f64() > Some(0.0)).count();
            1 + u64::from(row["paper_handshake_bytes"].is_number()) + spent as u64
        }
    };
    let ways = key_exchange.len() as u64;
    let bars = key_exchange.iter().map(bars).sum();
    let expected = [
        ("alchemy", 2, 1, 2),
        ("caching", 4, 2, 4 * 4 + 1),
        // Two plots of nine times, two of the time saved beside the paper, and one of both NATs.
        ("handover", 12, 5, 2 * 9 + 2 * 6 + 2 * 3 + 6),
        // Three figures for each protocol, and the draft's for each tag, in DTLS also for each length of the
        // connection ID.
        ("key-exchange", ways, 3 * 4 + 2 + 4, bars),
        ("link", 4, 1, 3),
    ];
    // Chromium numbers the colour schemes: 0 is dark.
    let [dark, light] = ["0", "1"].map(|scheme| {
        let shown = shown(&place, scheme);
        // The only message is the one of the measuring page. It shows that messages reach the console.
        assert!(shown.console.len() == 1 && shown.console[0].contains("measured"), "{:?}", shown.console);
        let [wide, narrow] = &shown.pages[..] else { panic!("{} pages", shown.pages.len()) };
        assert_eq!((&wide["width"], &narrow["width"]), (&1400.into(), &400.into()));
        for page in [wide, narrow] {
            assert_eq!(page["page_width"], page["width"], "wider than the window");
            assert_eq!(page["fetched"], serde_json::json!([]));
            let sections = page["sections"].as_array().unwrap();
            assert_eq!(sections.len(), expected.len());
            for (section, (heading, rows, plots, bars)) in sections.iter().zip(expected) {
                let told = format!("{section} in a width of {}", page["width"]);
                assert_eq!(section["heading"], heading, "{told}");
                assert!(section["heading_area"].as_f64() > Some(100.0), "{told}");
                let counted = ["rows", "plots", "bars"].map(|what| section[what].as_u64());
                assert_eq!(counted, [Some(rows), Some(plots), Some(bars)], "{told}");
                assert_eq!(section["cut_off"], 0, "{told}");
            }
        }
        assert_eq!(narrow["sections"][1]["table_scrolls"], true, "the table does not scroll in its box");
        let [ground, bar] = ["ground", "bar"].map(|what| wide[what].as_str().unwrap());
        // The page is painted, not only laid out: more than half is background, and the bars have far more
        // pixels than the legends.
        let pixels = shown.screenshot.0.len() / 3;
        assert_eq!(pixels, 1400 * 2400);
        assert!(shown.screenshot.count(ground) > pixels / 2, "{ground}");
        assert!(shown.screenshot.count(bar) > 5000, "{bar}: {}", shown.screenshot.count(bar));
        (ground.to_owned(), bar.to_owned())
    });
    assert!(dark.0 != light.0 && dark.1 != light.1, "{dark:?} {light:?}");
}
