// The benchmarks of tf_cnn_benchmarks' leading_indicators_test.py, as command lines of it. FAKE and REAL are
// placeholders of folders with ImageNet's TFRecords: a few drawn images, and the whole data set.
#include "trainyard/frontends/suite/suite.h"

namespace trainyard::frontends {
namespace {

constexpr SuiteEntry kEntries[] = {
    {"Resnet50BenchmarksInferenceCpu.synth_forward_batch1",
     "--num_gpus=1 --model=resnet50 --num_warmup_batches=5 --num_batches=50 --nodistortions "
     "--forward_only --device=cpu --data_format=NHWC --num_intra_threads=0 --batch_size=1"},
    {"Resnet50BenchmarksInferenceCpu.synth_forward_batch16",
     "--num_gpus=1 --model=resnet50 --num_warmup_batches=5 --num_batches=50 --nodistortions "
     "--forward_only --device=cpu --data_format=NHWC --num_intra_threads=0 --batch_size=16"},
    {"FrozenResnet50BenchmarksInferenceCpu.synth_forward_batch1",
     "--num_gpus=1 --model=resnet50 --num_warmup_batches=5 --num_batches=50 --nodistortions "
     "--forward_only --device=cpu --data_format=NHWC --num_intra_threads=0 --freeze_when_forward_only "
     "--batch_size=1"},
    {"FrozenResnet50BenchmarksInferenceCpu.synth_forward_batch16",
     "--num_gpus=1 --model=resnet50 --num_warmup_batches=5 --num_batches=50 --nodistortions "
     "--forward_only --device=cpu --data_format=NHWC --num_intra_threads=0 --freeze_when_forward_only "
     "--batch_size=16"},
    {"Resnet50BenchmarksInference.synth_forward_batch128",
     "--num_gpus=1 --model=resnet50 --nodistortions --forward_only --batch_size=128"},
    {"Resnet50BenchmarksInference.fp16_synth_forward_batch128",
     "--num_gpus=1 --model=resnet50 --nodistortions --forward_only --batch_size=128 --use_fp16"},
    {"Resnet50BenchmarksInference.fp16_synth_forward_batch16",
     "--num_gpus=1 --model=resnet50 --nodistortions --forward_only --batch_size=16 --use_fp16"},
    {"Resnet50BenchmarksInference.xla_synth_forward_batch128",
     "--num_gpus=1 --model=resnet50 --nodistortions --forward_only --batch_size=128 --xla"},
    {"Resnet50BenchmarksInference.fp16_xla_synth_forward_batch128",
     "--num_gpus=1 --model=resnet50 --nodistortions --forward_only --batch_size=128 --use_fp16 --xla"},
    {"Resnet50BenchmarksInference.fp16_xla_synth_forward_batch16",
     "--num_gpus=1 --model=resnet50 --nodistortions --forward_only --batch_size=16 --use_fp16 --xla"},
    {"FrozenResnet50BenchmarksInference.trt_synth_forward_batch128",
     "--num_gpus=1 --model=resnet50 --nodistortions --forward_only --freeze_when_forward_only "
     "--batch_size=128 --trt_mode=FP32"},
    {"FrozenResnet50BenchmarksInference.synth_forward_batch128",
     "--num_gpus=1 --model=resnet50 --nodistortions --forward_only --freeze_when_forward_only "
     "--batch_size=128"},
    {"FrozenResnet50BenchmarksInference.fp16_synth_forward_batch128",
     "--num_gpus=1 --model=resnet50 --nodistortions --forward_only --freeze_when_forward_only "
     "--batch_size=128 --use_fp16"},
    {"FrozenResnet50BenchmarksInference.fp16_synth_forward_batch16",
     "--num_gpus=1 --model=resnet50 --nodistortions --forward_only --freeze_when_forward_only "
     "--batch_size=16 --use_fp16"},
    {"FrozenResnet50BenchmarksInference.xla_synth_forward_batch128",
     "--num_gpus=1 --model=resnet50 --nodistortions --forward_only --freeze_when_forward_only "
     "--batch_size=128 --xla"},
    {"FrozenResnet50BenchmarksInference.fp16_xla_synth_forward_batch128",
     "--num_gpus=1 --model=resnet50 --nodistortions --forward_only --freeze_when_forward_only "
     "--batch_size=128 --use_fp16 --xla"},
    {"FrozenResnet50BenchmarksInference.fp16_xla_synth_forward_batch16",
     "--num_gpus=1 --model=resnet50 --nodistortions --forward_only --freeze_when_forward_only "
     "--batch_size=16 --use_fp16 --xla"},
    {"Resnet50Benchmarks.synth_1gpu_gpuparams",
     "--model=resnet50 --batch_size=128 --nodistortions --optimizer=momentum --num_gpus=1"},
    {"Resnet50Benchmarks.fake_1gpu_gpuparams",
     "--model=resnet50 --batch_size=128 --nodistortions --optimizer=momentum --num_gpus=1 "
     "--data_dir=FAKE --data_name=imagenet"},
    {"Resnet50Benchmarks.synth_1gpu_max_batch_size",
     "--model=resnet50 --batch_size=128 --nodistortions --optimizer=momentum --num_gpus=1 "
     "--variable_update=parameter_server",
     true},
    {"Resnet50Benchmarks.synth_4gpu_gpureplicated",
     "--model=resnet50 --batch_size=128 --nodistortions --optimizer=momentum --num_gpus=4 "
     "--variable_update=replicated --all_reduce_spec=nccl --gradient_repacking=2"},
    {"Resnet50Benchmarks.synth_8gpu_gpureplicated",
     "--model=resnet50 --batch_size=128 --nodistortions --optimizer=momentum --num_gpus=8 "
     "--variable_update=replicated --all_reduce_spec=nccl --gradient_repacking=2"},
    {"Resnet50Benchmarks.fake_8gpu_gpureplicated",
     "--model=resnet50 --batch_size=128 --nodistortions --optimizer=momentum --num_gpus=8 "
     "--data_dir=FAKE --data_name=imagenet --variable_update=replicated --all_reduce_spec=nccl "
     "--gradient_repacking=2"},
    {"Resnet50Benchmarks.fp16_synth_1gpu_gpuparams",
     "--model=resnet50 --batch_size=256 --nodistortions --use_fp16 --optimizer=momentum "
     "--loss_type_to_report=base_loss --compute_lr_on_cpu --single_l2_loss_op --num_gpus=1 "
     "--variable_update=parameter_server"},
    {"Resnet50Benchmarks.fp16_synth_1gpu_gpuparams_batch128",
     "--model=resnet50 --batch_size=128 --nodistortions --use_fp16 --optimizer=momentum "
     "--loss_type_to_report=base_loss --compute_lr_on_cpu --single_l2_loss_op --num_gpus=1 "
     "--variable_update=parameter_server"},
    {"Resnet50Benchmarks.fp16_synth_4gpu_gpureplicated",
     "--model=resnet50 --batch_size=256 --nodistortions --use_fp16 --optimizer=momentum "
     "--loss_type_to_report=base_loss --compute_lr_on_cpu --single_l2_loss_op --num_gpus=4 "
     "--variable_update=replicated --all_reduce_spec=nccl --gradient_repacking=2"},
    {"Resnet50Benchmarks.fp16_synth_8gpu_gpureplicated",
     "--model=resnet50 --batch_size=256 --nodistortions --use_fp16 --optimizer=momentum "
     "--loss_type_to_report=base_loss --compute_lr_on_cpu --single_l2_loss_op --num_gpus=8 "
     "--variable_update=replicated --all_reduce_spec=nccl --gradient_repacking=2"},
    {"Resnet50Benchmarks.fp16_fake_1gpu_gpuparams",
     "--model=resnet50 --batch_size=256 --nodistortions --use_fp16 --optimizer=momentum "
     "--loss_type_to_report=base_loss --compute_lr_on_cpu --single_l2_loss_op --num_gpus=1 "
     "--data_dir=FAKE --data_name=imagenet --variable_update=parameter_server"},
    {"Resnet50Benchmarks.fp16_fake_8gpu_gpureplicated",
     "--model=resnet50 --batch_size=256 --nodistortions --use_fp16 --optimizer=momentum "
     "--loss_type_to_report=base_loss --compute_lr_on_cpu --single_l2_loss_op --num_gpus=8 "
     "--data_dir=FAKE --data_name=imagenet --variable_update=replicated --all_reduce_spec=nccl "
     "--gradient_repacking=2"},
    {"Resnet50Benchmarks.fp16_fakedistort_8gpu_gpureplicated",
     "--model=resnet50 --batch_size=256 --distortions --use_fp16 --optimizer=momentum "
     "--loss_type_to_report=base_loss --compute_lr_on_cpu --single_l2_loss_op --num_gpus=8 "
     "--data_dir=FAKE --data_name=imagenet --variable_update=replicated --all_reduce_spec=nccl "
     "--gradient_repacking=2"},
    {"Resnet50Benchmarks.xla_synth_1gpu_gpuparams",
     "--model=resnet50 --batch_size=128 --nodistortions --optimizer=momentum --num_gpus=1 "
     "--variable_update=parameter_server --xla"},
    {"Resnet50Benchmarks.fp16_xla_synth_1gpu_gpuparams",
     "--model=resnet50 --batch_size=256 --nodistortions --use_fp16 --optimizer=momentum "
     "--loss_type_to_report=base_loss --compute_lr_on_cpu --single_l2_loss_op --num_gpus=1 "
     "--variable_update=parameter_server --xla"},
    {"Resnet50Benchmarks.ng_xla_batch64_synth_1gpu_gpuparams",
     "--model=resnet50 --batch_size=64 --nodistortions --optimizer=momentum --num_gpus=1 "
     "--variable_update=parameter_server --xla"},
    {"Resnet50Benchmarks.fp16_xla_batch64_synth_1gpu_gpuparams",
     "--model=resnet50 --batch_size=64 --nodistortions --use_fp16 --optimizer=momentum "
     "--loss_type_to_report=base_loss --compute_lr_on_cpu --single_l2_loss_op --num_gpus=1 "
     "--variable_update=parameter_server --xla"},
    {"Resnet50Benchmarks.fp16_xla_batch128_synth_1gpu_gpuparams",
     "--model=resnet50 --batch_size=128 --nodistortions --use_fp16 --optimizer=momentum "
     "--loss_type_to_report=base_loss --compute_lr_on_cpu --single_l2_loss_op --num_gpus=1 "
     "--variable_update=parameter_server --xla"},
    {"Resnet50Benchmarks.xla_synth_1gpu_max_batch_size",
     "--model=resnet50 --batch_size=128 --nodistortions --optimizer=momentum --num_gpus=1 "
     "--variable_update=parameter_server --xla",
     true},
    {"Resnet50Benchmarks.xla_real_1gpu_gpuparams",
     "--model=resnet50 --batch_size=128 --nodistortions --optimizer=momentum --num_gpus=1 "
     "--data_dir=REAL --variable_update=parameter_server --xla"},
    {"Resnet50Benchmarks.xla_fake_1gpu_gpuparams",
     "--model=resnet50 --batch_size=128 --nodistortions --optimizer=momentum --num_gpus=1 "
     "--data_dir=FAKE --data_name=imagenet --variable_update=parameter_server --xla"},
    {"Resnet50Benchmarks.xla_fakedistort_1gpu_gpuparams",
     "--model=resnet50 --batch_size=128 --distortions --optimizer=momentum --num_gpus=1 "
     "--data_dir=FAKE --data_name=imagenet --variable_update=parameter_server --xla"},
    {"Resnet50v15Benchmarks.fp16_synth_1gpu_gpuparams",
     "--model=resnet50_v1.5 --batch_size=256 --nodistortions --use_fp16 --optimizer=momentum "
     "--loss_type_to_report=base_loss --compute_lr_on_cpu --single_l2_loss_op --num_gpus=1"},
    {"Resnet50v15Benchmarks.fp16_batch256_synth_8gpu_gpuparams",
     "--model=resnet50_v1.5 --batch_size=256 --nodistortions --use_fp16 --optimizer=momentum "
     "--loss_type_to_report=base_loss --compute_lr_on_cpu --single_l2_loss_op --num_gpus=8"},
    {"Resnet50v15Benchmarks.fp16_batch128_synth_1gpu_gpuparams",
     "--model=resnet50_v1.5 --batch_size=128 --nodistortions --use_fp16 --optimizer=momentum "
     "--loss_type_to_report=base_loss --compute_lr_on_cpu --single_l2_loss_op --num_gpus=1"},
    {"Resnet50v15Benchmarks.fp16_fake_1gpu_gpuparams",
     "--model=resnet50_v1.5 --batch_size=256 --nodistortions --use_fp16 --optimizer=momentum "
     "--loss_type_to_report=base_loss --compute_lr_on_cpu --single_l2_loss_op --num_gpus=1 "
     "--data_dir=FAKE --data_name=imagenet"},
    {"Resnet50v15Benchmarks.fp16_synth_8gpu_gpureplicated",
     "--model=resnet50_v1.5 --batch_size=256 --nodistortions --use_fp16 --optimizer=momentum "
     "--loss_type_to_report=base_loss --compute_lr_on_cpu --single_l2_loss_op --num_gpus=8 "
     "--num_batches=200 --variable_update=replicated --all_reduce_spec=nccl --gradient_repacking=2"},
    {"Resnet50v15Benchmarks.fp16_fake_8gpu_gpureplicated",
     "--model=resnet50_v1.5 --batch_size=256 --nodistortions --use_fp16 --optimizer=momentum "
     "--loss_type_to_report=base_loss --compute_lr_on_cpu --single_l2_loss_op --num_gpus=8 "
     "--num_batches=200 --data_dir=FAKE --data_name=imagenet --variable_update=replicated "
     "--all_reduce_spec=nccl --gradient_repacking=2"},
    {"Resnet50v15Benchmarks.fp16_xla_synth_1gpu_gpuparams",
     "--model=resnet50_v1.5 --batch_size=256 --nodistortions --use_fp16 --optimizer=momentum "
     "--loss_type_to_report=base_loss --compute_lr_on_cpu --single_l2_loss_op --num_gpus=1 --xla"},
    {"Resnet50v15Benchmarks.fp16_xla_batch128_synth_1gpu_gpuparams",
     "--model=resnet50_v1.5 --batch_size=128 --nodistortions --use_fp16 --optimizer=momentum "
     "--loss_type_to_report=base_loss --compute_lr_on_cpu --single_l2_loss_op --num_gpus=1 --xla"},
    {"Resnet50v15Benchmarks.fp16_xla_compile_synth_1gpu_gpuparams",
     "--model=resnet50_v1.5 --batch_size=256 --nodistortions --use_fp16 --optimizer=momentum "
     "--loss_type_to_report=base_loss --compute_lr_on_cpu --single_l2_loss_op --num_gpus=1 "
     "--xla_compile"},
    {"Resnet50v15Benchmarks.fp16_xla_compile_batch128_synth_1gpu_gpuparams",
     "--model=resnet50_v1.5 --batch_size=128 --nodistortions --use_fp16 --optimizer=momentum "
     "--loss_type_to_report=base_loss --compute_lr_on_cpu --single_l2_loss_op --num_gpus=1 "
     "--num_batches=200 --xla_compile"},
    {"Resnet50v15Benchmarks.fp16_xla_batch256_synth_8gpu_gpuparams",
     "--model=resnet50_v1.5 --batch_size=256 --nodistortions --use_fp16 --optimizer=momentum "
     "--loss_type_to_report=base_loss --compute_lr_on_cpu --single_l2_loss_op --num_gpus=8 "
     "--num_batches=200 --xla"},
    {"Resnet50v15Benchmarks.fp16_xla_compile_fake_1gpu_gpuparams",
     "--model=resnet50_v1.5 --batch_size=256 --nodistortions --use_fp16 --optimizer=momentum "
     "--loss_type_to_report=base_loss --compute_lr_on_cpu --single_l2_loss_op --num_gpus=1 "
     "--data_dir=FAKE --data_name=imagenet --xla_compile"},
    {"Resnet50v15Benchmarks.fp16_xla_compile_synth_8gpu_gpureplicated",
     "--model=resnet50_v1.5 --batch_size=256 --nodistortions --use_fp16 --optimizer=momentum "
     "--loss_type_to_report=base_loss --compute_lr_on_cpu --single_l2_loss_op --num_gpus=8 "
     "--num_batches=200 --variable_update=replicated --all_reduce_spec=nccl --gradient_repacking=2 "
     "--xla_compile"},
    {"Resnet50v15Benchmarks.fp16_xla_synth_8gpu_gpureplicated",
     "--model=resnet50_v1.5 --batch_size=256 --nodistortions --use_fp16 --optimizer=momentum "
     "--loss_type_to_report=base_loss --compute_lr_on_cpu --single_l2_loss_op --num_gpus=8 "
     "--num_batches=200 --variable_update=replicated --all_reduce_spec=nccl --gradient_repacking=2 "
     "--xla"},
    {"Resnet50v15Benchmarks.fp16_xla_compile_fake_8gpu_gpureplicated",
     "--model=resnet50_v1.5 --batch_size=256 --nodistortions --use_fp16 --optimizer=momentum "
     "--loss_type_to_report=base_loss --compute_lr_on_cpu --single_l2_loss_op --num_gpus=8 "
     "--num_batches=200 --data_dir=FAKE --data_name=imagenet --variable_update=replicated "
     "--all_reduce_spec=nccl --gradient_repacking=2 --xla_compile"},
    {"Vgg16Benchmarks.synth_1gpu_gpuparams",
     "--model=vgg16 --batch_size=128 --nodistortions --num_gpus=1 --variable_update=parameter_server"},
    {"Vgg16Benchmarks.fp16_synth_1gpu_gpuparams",
     "--model=vgg16 --batch_size=128 --nodistortions --num_gpus=1 --use_fp16 "
     "--variable_update=parameter_server"},
    {"Vgg16Benchmarks.synth_8gpu_gpureplicated",
     "--model=vgg16 --batch_size=128 --nodistortions --num_gpus=8 --all_reduce_spec=nccl "
     "--variable_update=replicated --nocompact_gradient_transfer --gradient_repacking=2"},
    {"Vgg16Benchmarks.xla_synth_1gpu_gpuparams",
     "--model=vgg16 --batch_size=128 --nodistortions --num_gpus=1 --variable_update=parameter_server "
     "--xla"},
    {"Vgg16Benchmarks.fp16_xla_synth_1gpu_gpuparams",
     "--model=vgg16 --batch_size=128 --nodistortions --num_gpus=1 --variable_update=parameter_server "
     "--xla --use_fp16"},
    {"Vgg16Benchmarks.xla_fake_1gpu_gpuparams",
     "--model=vgg16 --batch_size=128 --nodistortions --num_gpus=1 --data_dir=FAKE --data_name=imagenet "
     "--variable_update=parameter_server --xla"},
    {"Vgg16Benchmarks.xla_real_1gpu_gpuparams",
     "--model=vgg16 --batch_size=128 --nodistortions --num_gpus=1 --data_dir=REAL "
     "--variable_update=parameter_server --xla"},
    {"TrivialBenchmarks.fake_64batch",
     "--model=trivial --num_gpus=8 --nodistortions --variable_update=independent --data_dir=FAKE "
     "--batch_size=64 --data_name=imagenet"},
    {"TrivialBenchmarks.fake_128batch",
     "--model=trivial --num_gpus=8 --nodistortions --variable_update=independent --data_dir=FAKE "
     "--batch_size=128 --data_name=imagenet"},
    {"TrivialBenchmarks.fake_256batch",
     "--model=trivial --num_gpus=8 --nodistortions --variable_update=independent --data_dir=FAKE "
     "--batch_size=256 --data_name=imagenet"},
    {"TrivialBenchmarks.fakedistort_128batch",
     "--model=trivial --num_gpus=8 --distortions --variable_update=independent --data_dir=FAKE "
     "--batch_size=128 --data_name=imagenet"},
    {"AlexnetBenchmarks.synth_1gpu_gpuparams",
     "--model=alexnet --batch_size=512 --nodistortions --num_gpus=1 --variable_update=parameter_server"},
    {"AlexnetBenchmarks.fp16_synth_1gpu_gpuparams",
     "--model=alexnet --batch_size=512 --nodistortions --num_gpus=1 --use_fp16 "
     "--variable_update=parameter_server"},
    {"AlexnetBenchmarks.synth_8gpu_gpureplicated",
     "--model=alexnet --batch_size=512 --nodistortions --num_gpus=8 --variable_update=replicated "
     "--all_reduce_spec=nccl --nocompact_gradient_transfer --gradient_repacking=2"},
    {"AlexnetBenchmarks.fake_8gpu_gpureplicated",
     "--model=alexnet --batch_size=512 --nodistortions --num_gpus=8 --data_dir=FAKE "
     "--data_name=imagenet --variable_update=replicated --all_reduce_spec=nccl "
     "--nocompact_gradient_transfer --gradient_repacking=2"},
    {"AlexnetBenchmarks.xla_synth_1gpuparams",
     "--model=alexnet --batch_size=512 --nodistortions --num_gpus=1 --variable_update=parameter_server "
     "--xla"},
    {"AlexnetBenchmarks.fp16_xla_synth_1gpu_gpuparams",
     "--model=alexnet --batch_size=512 --nodistortions --num_gpus=1 --variable_update=parameter_server "
     "--xla --use_fp16"},
    {"AlexnetBenchmarks.xla_fake_1gpuparams",
     "--model=alexnet --batch_size=512 --nodistortions --num_gpus=1 --data_dir=FAKE "
     "--data_name=imagenet --variable_update=parameter_server --xla"},
    {"AlexnetBenchmarks.xla_real_1gpuparams",
     "--model=alexnet --batch_size=512 --nodistortions --num_gpus=1 --data_dir=REAL "
     "--variable_update=parameter_server --xla"},
    {"InceptionV3Benchmarks.synth_1gpu_gpuparams",
     "--model=inception3 --batch_size=64 --nodistortions --num_gpus=1 "
     "--variable_update=parameter_server"},
    {"InceptionV3Benchmarks.fp16_synth_1gpu_gpuparams",
     "--model=inception3 --batch_size=64 --nodistortions --num_gpus=1 --use_fp16 "
     "--variable_update=parameter_server"},
    {"InceptionV3Benchmarks.synth_1gpu_max_batch_size",
     "--model=inception3 --batch_size=64 --nodistortions --num_gpus=1 "
     "--variable_update=parameter_server",
     true},
    {"InceptionV3Benchmarks.xla_synth_1gpu_gpuparams",
     "--model=inception3 --batch_size=64 --nodistortions --num_gpus=1 "
     "--variable_update=parameter_server --xla"},
    {"InceptionV3Benchmarks.fp16_xla_synth_1gpu_gpuparams",
     "--model=inception3 --batch_size=64 --nodistortions --num_gpus=1 "
     "--variable_update=parameter_server --xla --use_fp16"},
    {"InceptionV3Benchmarks.xla_synth_1gpu_max_batch_size",
     "--model=inception3 --batch_size=64 --nodistortions --num_gpus=1 "
     "--variable_update=parameter_server --xla",
     true},
    {"InceptionV3Benchmarks.xla_fake_1gpu_gpuparams",
     "--model=inception3 --batch_size=64 --nodistortions --num_gpus=1 --data_dir=FAKE "
     "--data_name=imagenet --variable_update=parameter_server --xla"},
    {"InceptionV3Benchmarks.xla_real_1gpu_gpuparams",
     "--model=inception3 --batch_size=64 --nodistortions --num_gpus=1 --data_dir=REAL "
     "--variable_update=parameter_server --xla"},
    {"NcfBenchmarks.synth_1gpu_gpuparams",
     "--model=ncf --batch_size=65536 --num_gpus=1 --num_warmup_batches=1 "
     "--variable_update=parameter_server"},
    {"NcfBenchmarks.fp16_synth_1gpu_gpuparams",
     "--model=ncf --batch_size=65536 --num_gpus=1 --num_warmup_batches=1 "
     "--variable_update=parameter_server --use_fp16"},
    {"NcfBenchmarks.xla_synth_1gpu_gpuparams",
     "--model=ncf --batch_size=65536 --num_gpus=1 --num_warmup_batches=1 "
     "--variable_update=parameter_server --xla"},
    {"NcfBenchmarks.fp16_xla_synth_1gpu_gpuparams",
     "--model=ncf --batch_size=65536 --num_gpus=1 --num_warmup_batches=1 "
     "--variable_update=parameter_server --xla --use_fp16"},
    {"NcfBenchmarks.xla_compile_synth_1gpu_gpuparams",
     "--model=ncf --batch_size=65536 --num_gpus=1 --num_warmup_batches=1 "
     "--variable_update=parameter_server --xla_compile"},
    {"NcfBenchmarks.fp16_xla_compile_synth_1gpu_gpuparams",
     "--model=ncf --batch_size=65536 --num_gpus=1 --num_warmup_batches=1 "
     "--variable_update=parameter_server --xla_compile --use_fp16"},
    {"DeepSpeech2Benchmarks.synth_1gpu_gpuparams",
     "--model=deepspeech2 --batch_size=32 --num_gpus=1 --data_name=librispeech "
     "--variable_update=parameter_server"},
    {"DeepSpeech2Benchmarks.xla_synth_1gpu_gpuparams",
     "--model=deepspeech2 --batch_size=32 --num_gpus=1 --data_name=librispeech "
     "--variable_update=parameter_server --xla"},
    {"DeepSpeech2Benchmarks.xla_compile_synth_1gpu_gpuparams",
     "--model=deepspeech2 --batch_size=32 --num_gpus=1 --data_name=librispeech "
     "--variable_update=parameter_server --xla_compile"},
    {"SsdBenchmarks.xla_compile_real_1gpu_gpuparams",
     "--backbone_model_path=MODEL --data_dir=REAL --batch_size=128 --data_name=coco --model=ssd300 "
     "--num_batches=10 --num_warmup_batches=1 --num_gpus=1 --optimizer=momentum --momentum=0.9 "
     "--weight_decay=0.0005 --loss_type_to_report=base_loss --single_l2_loss_op --compute_lr_on_cpu "
     "--xla_compile"},
    {"SsdBenchmarks.real_1gpu_gpuparams",
     "--backbone_model_path=MODEL --data_dir=REAL --batch_size=128 --data_name=coco --model=ssd300 "
     "--num_batches=10 --num_warmup_batches=1 --num_gpus=1 --optimizer=momentum --momentum=0.9 "
     "--weight_decay=0.0005 --loss_type_to_report=base_loss --single_l2_loss_op --compute_lr_on_cpu"},
    {"SsdBenchmarks.xla_compile_fp16_real_1gpu_gpuparams",
     "--backbone_model_path=MODEL --data_dir=REAL --batch_size=128 --data_name=coco --model=ssd300 "
     "--num_batches=10 --num_warmup_batches=1 --num_gpus=1 --optimizer=momentum --momentum=0.9 "
     "--weight_decay=0.0005 --loss_type_to_report=base_loss --single_l2_loss_op --compute_lr_on_cpu "
     "--xla_compile --use_fp16"},
    {"SsdBenchmarks.fp16_real_1gpu_gpuparams",
     "--backbone_model_path=MODEL --data_dir=REAL --batch_size=128 --data_name=coco --model=ssd300 "
     "--num_batches=10 --num_warmup_batches=1 --num_gpus=1 --optimizer=momentum --momentum=0.9 "
     "--weight_decay=0.0005 --loss_type_to_report=base_loss --single_l2_loss_op --compute_lr_on_cpu "
     "--use_fp16"},
    {"SsdBenchmarks.xla_compile_real_8gpu_gpuparams",
     "--backbone_model_path=MODEL --data_dir=REAL --batch_size=128 --data_name=coco --model=ssd300 "
     "--num_batches=50 --num_warmup_batches=1 --num_gpus=8 --optimizer=momentum --momentum=0.9 "
     "--weight_decay=0.0005 --loss_type_to_report=base_loss --single_l2_loss_op --compute_lr_on_cpu "
     "--xla_compile --variable_update=replicated --all_reduce_spec=nccl --gradient_repacking=2"},
    {"SsdBenchmarks.real_8gpu_gpuparams",
     "--backbone_model_path=MODEL --data_dir=REAL --batch_size=128 --data_name=coco --model=ssd300 "
     "--num_batches=50 --num_warmup_batches=1 --num_gpus=8 --optimizer=momentum --momentum=0.9 "
     "--weight_decay=0.0005 --loss_type_to_report=base_loss --single_l2_loss_op --compute_lr_on_cpu "
     "--variable_update=replicated --all_reduce_spec=nccl --gradient_repacking=2"},
    {"SsdBenchmarks.xla_compile_fp16_real_8gpu_gpuparams",
     "--backbone_model_path=MODEL --data_dir=REAL --batch_size=128 --data_name=coco --model=ssd300 "
     "--num_batches=50 --num_warmup_batches=1 --num_gpus=8 --optimizer=momentum --momentum=0.9 "
     "--weight_decay=0.0005 --loss_type_to_report=base_loss --single_l2_loss_op --compute_lr_on_cpu "
     "--xla_compile --use_fp16 --variable_update=replicated --all_reduce_spec=nccl "
     "--gradient_repacking=2"},
    {"SsdBenchmarks.fp16_real_8gpu_gpuparams",
     "--backbone_model_path=MODEL --data_dir=REAL --batch_size=128 --data_name=coco --model=ssd300 "
     "--num_batches=50 --num_warmup_batches=1 --num_gpus=8 --optimizer=momentum --momentum=0.9 "
     "--weight_decay=0.0005 --loss_type_to_report=base_loss --single_l2_loss_op --compute_lr_on_cpu "
     "--use_fp16 --variable_update=replicated --all_reduce_spec=nccl --gradient_repacking=2"},
};

}  // namespace

std::span<const SuiteEntry> suite_entries() {
  return kEntries;
}

}  // namespace trainyard::frontends
