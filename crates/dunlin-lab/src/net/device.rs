//! Devices in namespaces, made by the system's tools.

use std::io::{ErrorKind, Write};
use std::net::Ipv4Addr;
use std::process::{Command, Stdio};

use super::Namespace;
use crate::Error;

/// One end of a line: a device in a namespace.
#[derive(Clone, Copy, Debug)]
pub struct End<'a> {
    /// The namespace of the device.
    pub namespace: &'a Namespace,
    /// Its name, at most 15 bytes.
    pub device: &'a str,
    /// Its address and prefix length; `None` if the caller sets the address later.
    pub address: Option<(Ipv4Addr, u8)>,
    /// The MTU in bytes.
    pub mtu: u16,
}

/// Joins two namespaces by a pair of Ethernet devices without offloads. Each packet arrives as it was sent,
/// within the MTU and with its checksum.
///
/// # Errors
/// A tool (`ip` or `ethtool`) or a privilege is missing, or the device exists.
pub fn veth(ends: [End<'_>; 2]) -> Result<(), Error> {
    let [a, b] = ends;
    let here = a.device;
    let there = b.device;
    let namespace = b.namespace.path();
    let namespace = namespace.display();
    a.namespace.ip(&format!("link add {here} type veth peer name {there} netns {namespace}\n"))?;
    for end in ends {
        let End { device, mtu, .. } = end;
        let address =
            end.address.map(|(address, prefix)| format!("address add {address}/{prefix} dev {device}\n"));
        let up = format!("link set {device} mtu {mtu} up\nlink set lo up\n");
        end.namespace.ip(&[address.unwrap_or_default(), up].concat())?;
        let mut ethtool = Command::new("ethtool");
        ethtool.args(["-K", device]);
        // With offloads the kernel would join segments and omit checksums, unlike a real line.
        for offload in ["tso", "gso", "gro", "sg", "tx", "rx"] {
            ethtool.args([offload, "off"]);
        }
        end.namespace.tool(ethtool, "ethtool", "")?;
    }
    Ok(())
}

/// Sets the MTU of each end's device.
///
/// # Errors
/// The device does not exist, or refuses the MTU.
pub fn set_mtu(ends: [End<'_>; 2]) -> Result<(), Error> {
    ends.iter().try_for_each(|end| end.namespace.ip(&format!("link set {} mtu {}\n", end.device, end.mtu)))
}

impl Namespace {
    /// Runs lines of `ip` in the namespace, up to the first failure.
    ///
    /// # Errors
    /// `ip` is missing or failed.
    pub fn ip(&self, lines: &str) -> Result<(), Error> {
        let mut ip = Command::new("ip");
        ip.args(["-batch", "-"]);
        self.tool(ip, "iproute2", lines)
    }

    /// Adds rules of nftables in the namespace.
    ///
    /// # Errors
    /// `nft` is missing or failed.
    pub fn nft(&self, rules: &str) -> Result<(), Error> {
        let mut nft = Command::new("nft");
        nft.args(["-f", "-"]);
        self.tool(nft, "nftables", rules)
    }

    /// Runs a tool of Debian's `package` in the namespace, with `input` on stdin.
    fn tool(&self, mut command: Command, package: &str, input: &str) -> Result<(), Error> {
        let tool = command.get_program().to_string_lossy().into_owned();
        let failed = |error: std::io::Error| match error.kind() {
            ErrorKind::NotFound => {
                Error::new(&tool, "is not in PATH", format_args!("install it: apt-get install {package}"))
            }
            _ => Error::new(&tool, error, "free some resources"),
        };
        command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped());
        let mut child = self.run(|| command.spawn())?.map_err(failed)?;
        // A tool that ends early gives the reason on stderr.
        let _ = child.stdin.take().map(|mut stdin| stdin.write_all(input.as_bytes()));
        let output = child.wait_with_output().map_err(failed)?;
        if output.status.success() {
            return Ok(());
        }
        let told = String::from_utf8_lossy(&output.stderr);
        let why = told.lines().next().unwrap_or("failed without a word");
        Err(Error::new(
            format_args!("{tool} in network namespace {}", self.name()),
            why,
            "check names, addresses, MTU and what this kernel offers",
        ))
    }
}
