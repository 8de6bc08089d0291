// Californium's Scandium (DTLS 1.2) as a peer for the tests: it is the server or the client on a UDP socket,
// says in a line what was agreed, and echoes records until the other side closes. Arguments: server or
// client, then NAME=VALUE.

import java.io.BufferedReader;
import java.io.FileInputStream;
import java.io.InputStream;
import java.io.InputStreamReader;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.security.KeyFactory;
import java.security.PublicKey;
import java.security.cert.Certificate;
import java.security.cert.CertificateFactory;
import java.security.spec.X509EncodedKeySpec;
import java.util.HashMap;
import java.util.HexFormat;
import java.util.Map;
import java.util.concurrent.TimeUnit;

import org.eclipse.californium.elements.AddressEndpointContext;
import org.eclipse.californium.elements.RawData;
import org.eclipse.californium.elements.auth.RawPublicKeyIdentity;
import org.eclipse.californium.elements.config.CertificateAuthenticationMode;
import org.eclipse.californium.elements.config.Configuration;
import org.eclipse.californium.elements.util.SslContextUtil;
import org.eclipse.californium.scandium.DTLSConnector;
import org.eclipse.californium.scandium.config.DtlsConfig;
import org.eclipse.californium.scandium.config.DtlsConnectorConfig;
import org.eclipse.californium.scandium.dtls.AlertMessage;
import org.eclipse.californium.scandium.dtls.CertificateType;
import org.eclipse.californium.scandium.dtls.DTLSContext;
import org.eclipse.californium.scandium.dtls.Handshaker;
import org.eclipse.californium.scandium.dtls.InMemorySessionStore;
import org.eclipse.californium.scandium.dtls.ResumingClientHandshaker;
import org.eclipse.californium.scandium.dtls.ResumingServerHandshaker;
import org.eclipse.californium.scandium.dtls.SessionListener;
import org.eclipse.californium.scandium.dtls.pskstore.AdvancedSinglePskStore;
import org.eclipse.californium.scandium.dtls.x509.SingleCertificateProvider;
import org.eclipse.californium.scandium.dtls.x509.StaticNewAdvancedCertificateVerifier;

public class Peer {
    public static void main(String[] arguments) throws Exception {
        Map<String, String> values = new HashMap<>();
        for (int i = 1; i < arguments.length; i++) {
            String[] pair = arguments[i].split("=", 2);
            values.put(pair[0], pair[1]);
        }
        boolean isServer = arguments[0].equals("server");
        DTLSConnector connector = new DTLSConnector(configuration(isServer, values));
        connector.setRawDataReceiver(data -> echo(connector, data));
        connector.setAlertHandler((peer, alert) -> {
            boolean isClose = alert.getDescription() == AlertMessage.AlertDescription.CLOSE_NOTIFY;
            System.out.println(isClose ? "closed" : "alert " + alert.getDescription());
        });
        connector.start();
        if (isServer) {
            System.out.println("listening " + connector.getAddress().getPort());
        } else {
            hello(connector, address(values));
        }
        // Every line lets a client resume its session. The end of the input ends the program.
        BufferedReader input = new BufferedReader(new InputStreamReader(System.in));
        while (input.readLine() != null) {
            connector.forceResumeSessionFor(address(values));
            hello(connector, address(values));
        }
        System.exit(0);
    }

    private static DtlsConnectorConfig configuration(boolean isServer, Map<String, String> values) throws Exception {
        DtlsConnectorConfig.Builder builder = new DtlsConnectorConfig.Builder(new Configuration(DtlsConfig.DEFINITIONS));
        builder.setAddress(new InetSocketAddress(InetAddress.getLoopbackAddress(), 0));
        builder.set(DtlsConfig.DTLS_ROLE, isServer ? DtlsConfig.DtlsRole.SERVER_ONLY : DtlsConfig.DtlsRole.CLIENT_ONLY);
        builder.set(DtlsConfig.DTLS_RECEIVER_THREAD_COUNT, 1);
        builder.set(DtlsConfig.DTLS_CONNECTOR_THREAD_COUNT, 1);
        builder.set(DtlsConfig.DTLS_MAX_CONNECTIONS, 100);
        builder.set(DtlsConfig.DTLS_SUPPORT_KEY_MATERIAL_EXPORT, true);
        builder.set(DtlsConfig.DTLS_USE_SERVER_NAME_INDICATION, true);
        // It demands a cookie even with a pre-shared key, as it does by default.
        builder.set(DtlsConfig.DTLS_USE_HELLO_VERIFY_REQUEST, true);
        if (values.containsKey("cid")) {
            builder.set(DtlsConfig.DTLS_CONNECTION_ID_LENGTH, Integer.valueOf(values.get("cid")));
        }
        builder.setSessionStore(new InMemorySessionStore(10, TimeUnit.HOURS.toSeconds(1)));
        builder.setSessionListener(new Reporter());
        credentials(builder, isServer, values);
        return builder.build();
    }

    private static void credentials(DtlsConnectorConfig.Builder builder, boolean isServer, Map<String, String> values)
            throws Exception {
        if (values.containsKey("psk")) {
            byte[] key = HexFormat.of().parseHex(values.get("psk"));
            builder.setAdvancedPskStore(new AdvancedSinglePskStore(values.get("identity"), key));
            return;
        }
        if (isServer) {
            builder.set(DtlsConfig.DTLS_CLIENT_AUTHENTICATION_MODE, CertificateAuthenticationMode.NEEDED);
        }
        SslContextUtil.Credentials own;
        try (InputStream file = new FileInputStream(values.get("own"))) {
            own = SslContextUtil.loadPemCredentials(file);
        }
        StaticNewAdvancedCertificateVerifier.Builder verifier = StaticNewAdvancedCertificateVerifier.builder();
        if (values.containsKey("roots")) {
            builder.setCertificateIdentityProvider(new SingleCertificateProvider(own.getPrivateKey(),
                    own.getCertificateChain(), CertificateType.X_509));
            try (InputStream file = new FileInputStream(values.get("roots"))) {
                Certificate root = CertificateFactory.getInstance("X.509").generateCertificate(file);
                verifier.setTrustedCertificates(root);
            }
        } else {
            builder.setCertificateIdentityProvider(
                    new SingleCertificateProvider(own.getPrivateKey(), key(values.get("key"))));
            verifier.setTrustedRPKs(new RawPublicKeyIdentity(key(values.get("trust"))));
        }
        builder.setAdvancedCertificateVerifier(verifier.build());
    }

    /** The key of a SubjectPublicKeyInfo in hexadecimal. */
    private static PublicKey key(String spki) throws Exception {
        return KeyFactory.getInstance("EC").generatePublic(new X509EncodedKeySpec(HexFormat.of().parseHex(spki)));
    }

    private static void echo(DTLSConnector connector, RawData data) {
        connector.send(RawData.outbound(data.getBytes(), data.getEndpointContext(), null, false));
    }

    private static InetSocketAddress address(Map<String, String> values) {
        return new InetSocketAddress(InetAddress.getLoopbackAddress(), Integer.parseInt(values.get("connect")));
    }

    /** Sends the first record, for which the connector makes a handshake. */
    private static void hello(DTLSConnector connector, InetSocketAddress to) {
        AddressEndpointContext context = new AddressEndpointContext(to, "localhost", null);
        connector.send(RawData.outbound("hello".getBytes(), context, null, false));
    }

    /** Says what a handshake has agreed, or why it has failed. */
    private static class Reporter implements SessionListener {
        @Override
        public void handshakeStarted(Handshaker handshaker) {
        }

        @Override
        public void contextEstablished(Handshaker handshaker, DTLSContext context) {
            boolean isResumed =
                    handshaker instanceof ResumingClientHandshaker || handshaker instanceof ResumingServerHandshaker;
            byte[] exported = context.exportKeyMaterial("EXPORTER-of-a-test".getBytes(), null, 32);
            System.out.println("connected suite=" + context.getSession().getCipherSuite().name() + " resumed=" + isResumed
                    + " exported=" + HexFormat.of().formatHex(exported)
                    + " peer=" + context.getSession().getPeerIdentity().getClass().getSimpleName());
        }

        @Override
        public void handshakeCompleted(Handshaker handshaker) {
        }

        @Override
        public void handshakeFailed(Handshaker handshaker, Throwable error) {
            System.out.println("failed: " + error);
        }

        @Override
        public void handshakeFlightRetransmitted(Handshaker handshaker, int flight) {
        }
    }
}
