//! Programs with a mount of their own.

use std::process::Command;

use crate::peer::is_root;

/// The command that runs its arguments beside a mount which nothing else sees: `mount` with these options, at
/// this place.
pub fn beside_mount(options: &str, at: &str) -> Command {
    let mut command = Command::new("unshare");
    if !is_root() {
        command.args(["--user", "--map-root-user"]);
    }
    command.arg("--mount");
    let run = if is_mount_point("/") {
        "exec \"$@\""
    } else {
        // In a plain chroot, nothing can make `/` private, so others may see the mount until it is removed.
        command.args(["--propagation", "unchanged"]);
        "status=0; \"$@\" || status=$?; umount \"$0\"; exit $status"
    };
    command.args(["sh", "-euc", &format!("mount {options} \"$0\"; {run}"), at]);
    command
}

fn is_mount_point(path: &str) -> bool {
    let mounts = std::fs::read_to_string("/proc/self/mountinfo").expect("/proc is mounted");
    mounts.lines().any(|mount| mount.split(' ').nth(4) == Some(path))
}
