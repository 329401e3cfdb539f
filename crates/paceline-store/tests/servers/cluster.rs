use std::time::Duration;

use super::{Server, poll};

const SLOTS: usize = 16_384;

/// Masters that share the slots evenly, without replicas.
pub(crate) struct Cluster {
    nodes: Vec<Server>,
}

impl Cluster {
    /// Takes two seconds: that long a new node refuses to serve, whatever it knows.
    pub(crate) fn start(masters: usize) -> Self {
        let args = ["--cluster-enabled", "yes", "--cluster-announce-ip", "127.0.0.1"];
        let args = [&args[..], &["--cluster-node-timeout", "1000"]].concat();
        let nodes: Vec<_> = (0..masters).map(|_| Server::builder().args(&args).start()).collect();
        for (i, node) in nodes.iter().enumerate() {
            let (first, end) = (i * SLOTS / masters, (i + 1) * SLOTS / masters);
            let (first, last, epoch) = (first.to_string(), end - 1, i + 1);
            let ask = |command: &[&str]| node.command(command).unwrap();
            // Told by us, for masters of one epoch quarrel about it first.
            ask(&["CLUSTER", "SET-CONFIG-EPOCH", &epoch.to_string()]);
            ask(&["CLUSTER", "ADDSLOTSRANGE", &first, &last.to_string()]);
            for other in &nodes[..i] {
                ask(&["CLUSTER", "MEET", "127.0.0.1", &other.port().to_string()]);
            }
        }
        let cluster = Self { nodes };
        cluster.wait_until_ok();
        cluster
    }

    /// In the order of their slots.
    pub(crate) fn nodes(&self) -> &[Server] {
        &self.nodes
    }

    pub(crate) fn urls(&self) -> Vec<String> {
        self.nodes.iter().map(Server::url).collect()
    }

    /// Until all nodes know all others and serve, as after a restart of one of them.
    pub(crate) fn wait_until_ok(&self) {
        let wanted = [
            "cluster_state:ok".to_owned(),
            format!("cluster_slots_ok:{SLOTS}"),
            format!("cluster_known_nodes:{}", self.nodes.len()),
            format!("cluster_size:{}", self.nodes.len()),
        ];
        let infos = || self.nodes.iter().map(|it| it.command(&["CLUSTER", "INFO"]));
        let ok = |info: String| wanted.iter().all(|want| info.lines().any(|line| line == want));
        let all_ok = || infos().all(|info| info.is_ok_and(ok)).then_some(());
        poll(Duration::from_secs(20), all_ok)
            .unwrap_or_else(|| panic!("the cluster is not ok: {:#?}", infos().collect::<Vec<_>>()));
    }
}
