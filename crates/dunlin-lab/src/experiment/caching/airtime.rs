//! The cost of a handshake on radio networks: frames, airtime and a device's energy, over DTLS 1.3 in virtual
//! time.
//!
//! No frame is lost, no device waits for a free channel, and links do not acknowledge frames, so the figures
//! compare only what is sent. Servers demand no cookie. The energy is what the device's radio uses while it
//! sends and receives. Listening in between depends on the network and is excluded.

use std::sync::Arc;
use std::time::Duration;

use dunlin::Side;
use dunlin_sim::{CLIENT_ADDRESS, Cost, Headers, LoRaDataRate, Medium, SERVER_ADDRESS, Sent};

use super::case::{CONNECTIONS, Case, Credential, Keys, Mode, Protocol};
use super::datagrams;
use super::ends::{client, server};
use crate::Error;
use crate::report::Row;

/// The delay in one direction. It has no effect, because nothing is retransmitted.
const DELAY: Duration = Duration::from_millis(10);

/// A network, and a device's radio in it.
struct Network {
    name: &'static str,
    up: Medium,
    down: Medium,
    radio: Radio,
    /// The maximum share of time in which a device may send, in percent.
    duty_cycle_percent: Option<f64>,
}

/// The power of a radio, in milliwatts.
struct Radio {
    sending_mw: f64,
    receiving_mw: f64,
}

/// Texas Instruments CC2538 at 3.0 V: 24 mA sending at 0 dBm, 20 mA receiving, its processor idle (data sheet
/// SWRS096D, §1.1 and §5.4).
const CC2538: Radio = Radio { sending_mw: 24.0 * 3.0, receiving_mw: 20.0 * 3.0 };
/// Semtech SX1272 at 3.3 V: 28 mA sending at +13 dBm on RFO (data sheet), 10.8 mA receiving LoRa at 125 kHz
/// without LnaBoost (data sheet, revision 2, table 16).
const SX1272: Radio = Radio { sending_mw: 28.0 * 3.3, receiving_mw: 10.8 * 3.3 };
/// China Mobile M5311 at its typical 3.3 V: 167 mA sending at 23 dBm on one tone of 15 kHz, 54 mA receiving
/// (as M5Stack documents its module M028).
const M5311: Radio = Radio { sending_mw: 167.0 * 3.3, receiving_mw: 54.0 * 3.3 };

/// RP002-1.0.4 §2.4.1 and ETSI EN 300 220-2 (band M): each device may use the common European channels for 1
/// % of the time.
const EU868_PERCENT: f64 = 1.0;

const NETWORKS: [Network; 4] = [
    Network {
        name: "ieee802154",
        up: Medium::Ieee802154,
        down: Medium::Ieee802154,
        radio: CC2538,
        duty_cycle_percent: None,
    },
    Network {
        name: "lorawan_sf7",
        up: Medium::LoRaWan(LoRaDataRate::Dr5),
        down: Medium::LoRaWan(LoRaDataRate::Dr5),
        radio: SX1272,
        duty_cycle_percent: Some(EU868_PERCENT),
    },
    Network {
        name: "lorawan_sf12",
        up: Medium::LoRaWan(LoRaDataRate::Dr0),
        down: Medium::LoRaWan(LoRaDataRate::Dr0),
        radio: SX1272,
        duty_cycle_percent: Some(EU868_PERCENT),
    },
    Network {
        name: "nb_iot",
        up: Medium::NbIot { uplink: true },
        down: Medium::NbIot { uplink: false },
        radio: M5311,
        duty_cycle_percent: None,
    },
];

/// The measured credentials.
pub(super) fn credentials(quick: bool) -> Vec<Credential> {
    if quick {
        vec![Credential::RSA2048]
    } else {
        vec![Credential::RSA2048, Credential::P256, Credential::RAW_P256]
    }
}

/// Rows for these keys: one for each network, mode and connection.
pub(super) fn rows(keys: &Keys, runs: u32) -> Result<Vec<Row>, Error> {
    let mut rows = Vec::new();
    for mode in Mode::ALL {
        let case = Case { keys, protocol: Protocol::Dtls13, mode };
        let sent = (0..runs).map(|_| connections(&case)).collect::<Result<Vec<_>, _>>()?;
        for network in &NETWORKS {
            for (number, connection) in CONNECTIONS.into_iter().enumerate() {
                let costs: Vec<_> = sent.iter().filter_map(|both| network.costs(both.get(number)?)).collect();
                let row = case.row("dunlin").with("connection", connection).with("way", "virtual");
                rows.push(network.figures(row.with("medium", network.name), &costs));
            }
        }
    }
    Ok(rows)
}

/// The bytes of both sides and their parts.
struct Costs {
    up: Cost,
    down: Cost,
    dtls_bytes: usize,
}

impl Network {
    fn costs(&self, sent: &[Sent]) -> Option<Costs> {
        let by = |side, medium: Medium| {
            let datagrams = sent.iter().filter(|sent| sent.by == side);
            let costs = datagrams.map(|sent| medium.cost(Headers::UDP, sent.packet.len()));
            costs.reduce(|all, cost| Cost {
                frames: all.frames + cost.frames,
                bytes: all.bytes + cost.bytes,
                airtime: all.airtime + cost.airtime,
            })
        };
        let up = by(Side::Client, self.up)?;
        let down = by(Side::Server, self.down)?;
        Some(Costs { up, down, dtls_bytes: sent.iter().map(|sent| sent.packet.len()).sum() })
    }

    fn figures(&self, row: Row, costs: &[Costs]) -> Row {
        let of = |figure: &dyn Fn(&Costs) -> f64| costs.iter().map(figure).collect::<Vec<_>>();
        let ms = |cost: &Cost| cost.airtime.as_secs_f64() * 1e3;
        let Radio { sending_mw, receiving_mw } = self.radio;
        // The time from the start of this transmission until the device may send an equal one again.
        let wait = |percent: f64| of(&|all| ms(&all.up) / 1e3 * 100.0 / percent);
        row.figure("airtime_ms", &of(&|all| ms(&all.up) + ms(&all.down)))
            .figure("client_airtime_ms", &of(&|all| ms(&all.up)))
            .figure("server_airtime_ms", &of(&|all| ms(&all.down)))
            .figure(
                "client_energy_mj",
                &of(&|all| (ms(&all.up) * sending_mw + ms(&all.down) * receiving_mw) / 1e3),
            )
            .figure("total_bytes", &of(&|all| (all.up.bytes + all.down.bytes) as f64))
            .figure("dtls_bytes", &of(&|all| all.dtls_bytes as f64))
            .figure("packets", &of(&|all| (all.up.frames + all.down.frames) as f64))
            .figure("duty_cycle_s", &self.duty_cycle_percent.map(wait).unwrap_or_default())
    }
}

/// Returns the datagrams of two connections.
fn connections(case: &Case<'_>) -> Result<Vec<Vec<Sent>>, Error> {
    let client = Arc::new(client(case)?);
    let server = Arc::new(server(case)?.with_cookies(false));
    let mut now = dunlin_tokio::now();
    let connect = |handshake| {
        let addresses = [CLIENT_ADDRESS, SERVER_ADDRESS];
        let (sent, end) = datagrams::run((&client, &server), addresses, now, DELAY, handshake)?;
        now = end;
        Ok(sent)
    };
    case.mode.handshakes().into_iter().map(connect).collect()
}
