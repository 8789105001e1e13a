"""Hints for users of OpenNMT-py, fairseq, JoeyNMT, Marian and Hugging Face: what jumok calls their settings.

Only for error messages; jumok reads no setting by another name. Spellings such as beam_size, beam-size and --beam-size
are the same word.
"""

from collections.abc import Iterable

BOTH = "encoder.{0} and decoder.{0}"

SETTINGS = {
    "data.source": "src train_src source_file train_file",
    "data.target": "tgt trg train_tgt target_file",
    "data.valid_source": "valid_src dev_src validation_file",
    "data.valid_target": "valid_tgt dev_tgt",
    "tokenizer.size": "vocab_size src_vocab_size tgt_vocab_size bpe_size",
    "tokenizer.kind": "bpe level subword subword_type tokenizer_type",
    "tokenizer.shared": "share_vocab joined_dictionary joint_vocab",
    "filter.max_length": "src_seq_length tgt_seq_length max_source_positions max_target_positions "
    "max_seq_length max_source_length",
    "batch.tokens": "batch_size max_tokens mini_batch maxi_batch batch_type "
    "per_device_train_batch_size train_batch_size",
    "batch.sentences": "max_sentences",
    "training.steps": "epochs epoch max_epoch max_epochs num_train_epochs num_epochs train_steps "
    "max_steps max_updates total_steps",
    "training.learning_rate": "lr learning_rate max_lr",
    "training.warmup": "warmup_steps warmup_updates num_warmup_steps",
    "training.schedule": "lr_scheduler lr_scheduler_type decay_method scheduler lr_decay",
    "training.betas": "adam_beta1 adam_beta2 adam_betas beta1 beta2",
    "training.clip": "clip_norm max_grad_norm clip_grad_norm gradient_clip_val",
    "training.accumulate": "update_freq accum_count gradient_accumulation_steps optimizer_delay batch_multiplier",
    "training.precision": "fp16 bf16 amp mixed_precision dtype model_dtype",
    "training.ema": "exponential_smoothing ema_decay average_decay",
    "training.label_smoothing": "smoothing label_smoothing_factor label_smooth",
    "training.validate_every": "valid_steps eval_steps validation_freq valid_freq validate_interval "
    "evaluation_strategy",
    "training.save_every": "save_checkpoint_steps save_steps save_freq save_interval",
    "training.keep": "keep_checkpoint keep_best_ckpts save_total_limit",
    "training.average": "avg_checkpoints average_checkpoints",
    "training.patience": "early_stopping early_stopping_patience",
    "training.log_every": "log_interval logging_steps",
    "training.metric": "eval_metric best_checkpoint_metric metric_for_best_model valid_metrics",
    "training.r_drop": "reg_alpha rdrop rdrop_alpha",
    "training.guided_alignment": "lambda_align guided_alignment_weight",
    "decoding.beam": "beam_size beam_width num_beams",
    "decoding.length_penalty": "lenpen alpha normalize",
    "decoding.max_length": "max_len max_len_b max_output_length max_new_tokens max_decoding_length",
    "decoding.min_length": "min_len min_output_length min_decoding_length",
    "decoding.no_repeat": "no_repeat_ngram_size block_ngram_repeat",
    "decoding.samples": "sampling do_sample sample num_samples",
    "decoding.temperature": "sampling_temperature random_sampling_temp",
    "decoding.top_k": "sampling_topk random_sampling_topk",
    "decoding.top_p": "sampling_topp random_sampling_topp",
    BOTH.format("width"): "hidden_size rnn_size d_model dim_model model_dim embed_dim embedding_dim "
    "word_vec_size emb_size encoder_embed_dim decoder_embed_dim hidden_dim",
    BOTH.format("hidden"): "ff_size d_ff ffn_dim encoder_ffn_embed_dim "
    "decoder_ffn_embed_dim intermediate_size feedforward_dim dim_feedforward",
    BOTH.format("heads"): "num_heads n_heads attention_heads num_attention_heads transformer_heads "
    "encoder_attention_heads decoder_attention_heads",
    BOTH.format("dropout"): "dropout dropout_rate transformer_dropout",
    BOTH.format("kind"): "arch architecture encoder_type decoder_type model_type type",
    BOTH.format("cell"): "rnn_type cell_type",
    BOTH.format("norm"): "layer_norm encoder_normalize_before decoder_normalize_before",
    BOTH.format("positions"): "position_encoding pos_enc positional_encoding",
    BOTH.format("vectors"): "embeddings pretrained_embeddings encoder_embed_path embedding_vectors",
    BOTH.format("layers"): "num_layers n_layers nlayers num_hidden_layers",
    "encoder.layers": "enc_layers encoder_layers enc_depth",
    "decoder.layers": "dec_layers decoder_layers dec_depth",
    "decoder.attention": "global_attention attention_type attn attention_function",
    "decoder.tied": "tie_weights share_embeddings share_all_embeddings tied_embeddings tie_word_embeddings",
    "decoder.copy": "copy_attn copy_mechanism",
    "decoder.coverage": "coverage_attn",
    "decoder.input_feeding": "input_feed",
}
"""Settings of jumok, and their names in other toolkits."""

ABSENT = {
    "there is one optimiser here, AdamW": "optim optimizer optimiser",
    "several GPUs: torchrun --nproc-per-node 8 -m jumok train recipe.toml": "world_size gpu_ranks num_gpus devices",
    "a recipe is an argument without an option: jumok train recipe.toml": "config config_file cfg conf recipe yaml",
    "an ensemble is several model folders: jumok translate runs/a runs/b": "ensemble",
}
"""Messages about what jumok does not have, and its names in other toolkits."""

OPTIONS = {
    "--beam": "beam_size beam_width num_beams",
    "--n-best": "nbest n_best num_return_sequences",
    "--source": "src input infile input_file i",
    "--reference": "ref refs references tgt trg",
    "--target": "tgt trg",
    "--length-penalty": "lenpen alpha normalize",
    "--max-length": "max_len max_len_b max_output_length max_new_tokens",
    "--min-length": "min_len",
    "--sample": "sampling do_sample random_sampling",
    "--temperature": "sampling_temperature random_sampling_temp",
    "--top-k": "sampling_topk random_sampling_topk",
    "--top-p": "sampling_topp random_sampling_topp",
    "--no-repeat": "no_repeat_ngram_size block_ngram_repeat",
    "--batch": "batch_size max_tokens buffer_size mini_batch maxi_batch",
    "--max-source": "src_seq_length max_source_length max_source_positions max_input_length",
    "--device": "gpu gpus gpuid cuda use_cuda use_gpu cpu no_cuda",
    "--out": "save_dir save_model model_dir output_dir output o",
    "--resume": "train_from restore_file load_model resume_from_checkpoint continue",
    "--attention": "attn_debug report_align print_alignment alignment save_attention",
    "--metrics": "metric scorer scoring",
    "--tokenize": "tok tokenizer",
    "--lowercase": "lc",
}
"""Options of jumok's commands, and their names in other toolkits; hints name only options that the command has."""

VALUES = {
    "additive": "bahdanau mlp tanh",
    "general": "luong bilinear multiplicative",
    "dot": "scaled_dot dotprod dot_product",
    "none": "no false fixed",
    "rnn": "gru lstm brnn rnnsearch s2s seq2seq recurrent",
    "transformer": "vaswani transformer_base",
    "added": "sinusoidal sinusoid sin absolute",
    "rotary": "rope",
    "unigram": "sentencepiece spm sp",
    "bpe": "subword_nmt subword wordpiece",
    "char": "character characters byte bytes",
    "word": "words space whitespace",
    "inverse_sqrt": "inv_sqrt inverse_square_root",
    "cosine": "cosine_with_restarts",
    "constant": "constant_with_warmup fixed none",
    "bf16": "fp16 float16 half amp bfloat16",
    "float32": "fp32 single full",
    "loss": "ppl perplexity cross_entropy nll ce",
    "exact_match": "accuracy sequence_accuracy seq_acc em",
    "all": "true shared",
}
"""Values of settings, and their names in other toolkits; hints name only values that the setting takes."""

SECTIONS = {
    "[encoder] and [decoder]": "model network architecture",
    "[training]": "train optimizer optimization trainer optim",
    "[decoding]": "testing test generation generate translate inference search",
    "[tokenizer]": "vocab vocabulary sentencepiece",
    "[data]": "dataset corpus corpora",
}


def setting_hint(key: str, section: str = "") -> str:
    """The end of a message about an unknown setting; "" if no other toolkit has it."""
    if section and not any(f"{section}." in ours for ours in SETTINGS):
        return ""  # a section that only graphs or images have
    if ours := next(iter(_lookup(key, SETTINGS)), None):
        places = [place for place in ours.split(" and ") if place.startswith(f"{section}.")] or [ours]
        return f"; here it is {places[0]}{_remark(places[0])}"
    return absent_hint(key)


def absent_hint(key: str) -> str:
    """The end of a message about something jumok does not have; "" if no other toolkit has it."""
    return next((f"; {message}" for message in _lookup(key, ABSENT)), "")


def option_hint(option: str, known: Iterable[str]) -> str:
    """The end of a message about an unknown option of a command with the `known` options; "" if no toolkit has it."""
    available = set(known)
    ours = [name for name in _lookup(option, OPTIONS) if name in available]
    if ours:
        return f"; here it is {ours[0]}"
    if "--set" in available and (setting := next(iter(_own(option) or _lookup(option, SETTINGS)), None)):
        return f"; here it is --set {setting.split(' and ')[0]}=…{_remark(setting)}"
    return absent_hint(option)


def value_hint(value: object, known: Iterable[object]) -> str:
    """The end of a message about a value that a setting does not take; "" if no other toolkit has it."""
    available = set(known)
    ours = [name for name in _lookup(str(value), VALUES) if name in available]
    cell = f" with cell = {str(value).lower()!r}" if ours and str(value).lower() in ("gru", "lstm") else ""
    return f"; here it is {ours[0]!r}{cell}" if ours else ""


def section_hint(name: str) -> str:
    """The end of a message about an unknown section; "" if no other toolkit has it."""
    return next((f"; here it is {ours}" for ours in _lookup(name, SECTIONS)), "")


def _own(option: str) -> list[str]:
    """The settings of jumok that an option is called after, without their sections."""
    return [setting for setting in SETTINGS if setting.endswith(f".{_plain(option)}")]


def _lookup(word: str, table: dict[str, str]) -> list[str]:
    """The entries of a table for a word of another toolkit."""
    return [ours for ours, theirs in table.items() if _plain(word) in theirs.split()]


def _plain(word: str) -> str:
    return word.strip().lstrip("-").lower().replace("-", "_").replace(" ", "_")


def _remark(setting: str) -> str:
    """How the setting differs from that of the same meaning elsewhere."""
    remarks = {
        "training.steps": ", in updates of the weights, not epochs",
        "batch.tokens": ", in tokens; batch.sentences limits the sentences",
        "training.warmup": ", in steps",
    }
    return remarks.get(setting, "")
